"""The strategy and the cluster that a run's settings stand for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paceline.experiment.keys import (
    CLUSTER,
    DRIVER,
    FIELDS,
    RUN,
    STRATEGY,
    RunWords,
    cluster_value,
    is_alone,
)
from paceline.strategy.strategy import Strategy
from paceline.training.distributing import ClusterWords, DriverWords, StrategyWords
from paceline.training.starting import Setup


def distribution_of(settings: Mapping[str, Any]) -> tuple[Strategy, int] | None:
    """The strategy and its workers, checked together with cluster and driver; None: one process."""
    if is_alone(settings):
        return None
    driver_of(settings)
    given = {key: settings[key] for key in STRATEGY if key in settings}
    fields = {key: settings[key] for key in FIELDS if key in settings}
    strategy, workers = StrategyWords(**given, fields=fields).build()
    cluster_of(settings).build().check(workers)
    return strategy, workers


def setup_of(settings: Mapping[str, Any]) -> Setup:
    """How a training of these settings is carried out."""
    if is_alone(settings):
        return Setup()
    keys = (*STRATEGY, *FIELDS, *CLUSTER, *DRIVER)
    return Setup.of({key: cluster_value(key, settings[key]) for key in keys if key in settings})


def cluster_of(settings: Mapping[str, Any]) -> ClusterWords:
    return ClusterWords(**{key: cluster_value(key, settings[key]) for key in CLUSTER if key in settings})


def driver_of(settings: Mapping[str, Any]) -> DriverWords:
    return DriverWords(**{key: settings[key] for key in DRIVER if key in settings})


def run_words(settings: Mapping[str, Any]) -> RunWords:
    return RunWords(**{key: settings[key] for key in RUN if key in settings})
