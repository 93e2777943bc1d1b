"""Settings of a distribution become the objects that they describe: a strategy and a virtual cluster."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from paceline.errors import StrategyError
from paceline.settings import pick
from paceline.simulation.durations import DurationDistribution, parse_distribution
from paceline.simulation.virtual_cluster import Network, VirtualCluster, parse_change
from paceline.strategy.presets import find_strategy
from paceline.strategy.strategy import Strategy
from paceline.training.settings import ClusterSettings, StrategySettings

WORKERS = 2
"""The default number of workers of a strategy."""


def build_strategy(given: Mapping[str, Any]) -> tuple[Strategy, int]:
    """The strategy that settings describe, and how many workers carry it out. `strategy` may be one itself."""
    base = given.get("strategy", StrategySettings.strategy)
    words = {key: value for key, value in given.items() if key != "strategy" or isinstance(value, str)}
    settings = StrategySettings(**pick(StrategySettings, words))
    changes = pick(Strategy, {key: value for key, value in given.items() if key != "groups" or value is None})
    groups, workers = _groups(settings)
    if groups is not None:
        changes["groups"] = groups
    strategy = find_strategy(base, **changes, **_periods(base, settings, changes))
    workers = next(number for number in (workers, settings.workers, WORKERS) if number is not None)
    strategy.check(workers)
    return strategy, workers


def _periods(base: str | Strategy, settings: StrategySettings, changes: Mapping[str, Any]) -> dict[str, int]:
    """What `period` stands for: steps between two pushes, and between two fetches where there are any; with fragments,
    between two pushes of the same one."""
    if settings.period is None:
        return {}
    strategy = find_strategy(base, **{key: changes[key] for key in changes.keys() & {"exchange"}})
    if not strategy.make_exchange.local_optimizer:
        raise StrategyError(
            f"`period` is for workers with an optimizer of their own; with {strategy.name} use `push_every`"
        )
    if twice := sorted(changes.keys() & {"fetch_every", "push_every"}):
        raise StrategyError(f"`period` and `{twice[0]}` cannot be combined")
    push_every = max(1, settings.period // (changes.get("fragments", strategy.fragments) or 1))
    return {"push_every": push_every, "fetch_every": push_every if strategy.fetch_every else 0}


def _groups(settings: StrategySettings) -> tuple[int | None, int | None]:
    """How many groups, and how many workers they make."""
    if settings.groups is None:
        return None, None
    try:
        count, cross, each = str(settings.groups).partition("x")
        groups, size = int(count), int(each) if cross else None
    except ValueError:
        raise StrategyError(f"`groups={settings.groups!r}` should be GxK, e.g. 4x8, or a number of groups") from None
    if groups < 1 or (size is not None and size < 1):
        raise StrategyError(f"`groups={settings.groups!r}` should be at least 1x1")
    if size is not None and settings.workers is not None and groups * size != settings.workers:
        raise StrategyError(f"`groups={settings.groups!r}` are {groups * size} workers, not {settings.workers}")
    return groups, None if size is None else groups * size


def build_cluster(settings: ClusterSettings) -> VirtualCluster:
    def spread(name: str) -> DurationDistribution | None:
        text = getattr(settings, name)
        return None if text is None else parse_distribution(str(text), name)

    network = None
    if any(value is not None for value in (settings.network_time, settings.bandwidth, settings.latency)):
        bandwidth = math.inf if settings.bandwidth is None else settings.bandwidth
        network = Network(settings.latency or 0.0, bandwidth, time=spread("network_time"))
    return VirtualCluster(
        compute=spread("compute_time") or VirtualCluster.compute,
        server=spread("server_time"),
        network=network,
        speeds=tuple(settings.speeds or ()),
        changes=tuple(parse_change(text) for text in settings.change or ()),
        mean_life_s=settings.mean_life,
        restart_s=settings.restart or 0.0,
    )


def cluster_words(settings: ClusterSettings) -> dict[str, str]:
    """What was given of a cluster, as text for a record."""
    given = {f.name: getattr(settings, f.name) for f in dataclasses.fields(settings)}
    return {
        name: ",".join(map(str, value)) if isinstance(value, list) else str(value)
        for name, value in given.items()
        if value not in (None, [])
    }
