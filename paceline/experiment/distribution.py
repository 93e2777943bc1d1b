"""The strategy and the cluster that a run's settings stand for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paceline.experiment.keys import (
    ALONE,
    CLUSTER,
    DRIVER,
    FIELDS,
    RUN,
    STRATEGY,
    DriverWords,
    RunWords,
    cluster_value,
)
from paceline.strategy.pieces import check_shards
from paceline.strategy.strategy import Strategy
from paceline.train.distributing import ClusterWords, StrategyWords


def distribution_of(settings: Mapping[str, Any]) -> tuple[Strategy, int] | None:
    """The strategy and its workers, checked together with cluster and driver; None: one process."""
    if settings.get("strategy", ALONE) == ALONE:
        return None
    driver = driver_of(settings)
    given = {key: settings[key] for key in STRATEGY if key in settings}
    fields = {key: settings[key] for key in FIELDS if key in settings}
    strategy, workers = StrategyWords(**given, fields=fields).build()
    cluster_of(settings).build().check(workers)
    check_shards(driver.shards, strategy)
    if driver.collective != "auto":
        from paceline.train.local.collective import check_collective

        check_collective(driver.collective, strategy, workers, record_events=driver.record_events)
    return strategy, workers


def cluster_of(settings: Mapping[str, Any]) -> ClusterWords:
    return ClusterWords(**{key: cluster_value(key, settings[key]) for key in CLUSTER if key in settings})


def driver_of(settings: Mapping[str, Any]) -> DriverWords:
    return DriverWords(**{key: settings[key] for key in DRIVER if key in settings})


def run_words(settings: Mapping[str, Any]) -> RunWords:
    return RunWords(**{key: settings[key] for key in RUN if key in settings})
