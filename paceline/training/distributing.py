"""How training is distributed, in the words of a command line or a file: checked, and made a strategy and a cluster."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from paceline.errors import StrategyError, nearest
from paceline.simulation.durations import DurationDistribution, parse_distribution
from paceline.simulation.virtual_cluster import Network, VirtualCluster, parse_change
from paceline.strategy.correction import find_correction
from paceline.strategy.engine import check_policy
from paceline.strategy.exchange import find_exchange
from paceline.strategy.presets import find_strategy
from paceline.strategy.server_optimizer import check_optimizer
from paceline.strategy.strategy import Strategy
from paceline.training.validation_interval import parse_interval

DRIVERS = ("local", "virtual")
COLLECTIVES = ("auto", "shared", "nccl", "gloo")
_TYPES = {bool: "true or false", int: "a whole number", float: "a number", str: "text", list: "a list"}


def check_driver(driver: str) -> None:
    if driver not in DRIVERS:
        raise StrategyError(f"--driver {driver!r} is unknown: {nearest(driver, DRIVERS)}")


@dataclass(frozen=True)
class StrategyWords:
    """A strategy and what is changed in it. Names are those of the command line's options."""

    strategy: str | Strategy = "sync"
    """A published one, the user's `module:name`, or the strategy itself."""
    workers: int | None = None
    groups: str | int | None = None
    """`4x8`: four synchronous groups of eight workers; or how many groups."""
    exchange: str | None = None
    correction: str | None = None
    fetch_every: int | None = None
    push_every: int | None = None
    server_optimizer: str | None = None
    staleness_bound: int | None = None
    backup_workers: int | None = None
    period: int | None = None
    """Local steps between two exchanges."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Any other field of a strategy."""

    def __post_init__(self) -> None:
        check_types(self)

    def build(self) -> tuple[Strategy, int]:
        """The strategy, and how many workers carry it out."""
        names = ("exchange", "correction", "fetch_every", "push_every", "server_optimizer", "staleness_bound")
        changes = {name: getattr(self, name) for name in (*names, "backup_workers")}
        count, workers = self._groups()
        changes["groups"] = count
        given = {key: value for key, value in changes.items() if value is not None}
        given |= self._periods(given)
        if twice := sorted(given.keys() & self.fields.keys()):
            raise StrategyError(f"{twice[0]} is given twice: as an option and with --strategy-set {twice[0]}")
        strategy = find_strategy(self.strategy, **given, **self.fields)
        check_parts(strategy)
        workers = workers if workers is not None else (self.workers if self.workers is not None else 2)
        strategy.check(workers)
        return strategy, workers

    def _periods(self, given: dict[str, Any]) -> dict[str, int]:
        """What `period` stands for: steps between two pushes, and between two fetches where there are any."""
        if self.period is None:
            return {}
        base = find_strategy(self.strategy, **{key: given[key] for key in given.keys() & {"exchange"}})
        if not base.make_exchange.local_optimizer:
            raise StrategyError(
                f"--period is for workers with an optimizer of their own; with {base.name} use --push-every"
            )
        if self.period < 1:
            raise StrategyError(f"period={self.period} should be a whole number of at least 1")
        if twice := sorted(given.keys() & {"fetch_every", "push_every"}):
            raise StrategyError(f"--period and --{twice[0].replace('_', '-')} exclude each other")
        return {"push_every": self.period, "fetch_every": self.period if base.fetch_every else 0}

    def _groups(self) -> tuple[int | None, int | None]:
        """How many groups, and how many workers they make."""
        if self.groups is None:
            return None, None
        try:
            count, _, each = str(self.groups).partition("x")
            groups, size = int(count), int(each) if each else None
        except ValueError:
            raise StrategyError(f"--groups {self.groups!r} should be GxK, as 4x8, or a number of groups") from None
        if groups < 1 or (size is not None and size < 1):
            raise StrategyError(f"--groups {self.groups!r} should be at least 1x1")
        if size is not None and self.workers is not None and groups * size != self.workers:
            raise StrategyError(f"--groups {self.groups} are {groups * size} workers, not {self.workers}")
        return groups, None if size is None else groups * size


@dataclass(frozen=True)
class ClusterWords:
    """What a virtual cluster is like. Names are those of the command line's options."""

    compute_time: str | float | None = None
    server_time: str | float | None = None
    network_time: str | float | None = None
    bandwidth: float | None = None
    latency: float | None = None
    speeds: str | None = None
    change: list[str] | None = None
    mean_life: float | None = None
    restart: float | None = None

    def __post_init__(self) -> None:
        check_types(self)

    def words(self) -> dict[str, str]:
        """What was given, as it is written."""
        found = {f.name.replace("_", "-"): getattr(self, f.name) for f in dataclasses.fields(self)}
        return {name: str(value) for name, value in found.items() if value not in (None, [])}

    def build(self) -> VirtualCluster:
        def spread(option: str, text: str | float | None) -> DurationDistribution | None:
            return None if text is None else parse_distribution(str(text), option)

        network = None
        if any(v is not None for v in (self.network_time, self.bandwidth, self.latency)):
            network = Network(
                self.latency or 0.0,
                math.inf if self.bandwidth is None else self.bandwidth,
                time=spread("network-time", self.network_time),
            )
        return VirtualCluster(
            compute=spread("compute-time", self.compute_time) or VirtualCluster.compute,
            server=spread("server-time", self.server_time),
            network=network,
            speeds=_numbers(self.speeds, "speeds"),
            changes=tuple(parse_change(text) for text in self.change or ()),
            mean_life_s=self.mean_life,
            restart_s=self.restart or 0.0,
        )


TIMEOUTS = {
    "stopped_timeout": "stopped_s", "idle_timeout": "idle_s", "busy_timeout": "busy_s", "start_timeout": "start_s"
}  # fmt: skip
REAL_ONLY = ("server_threads", "collective", *TIMEOUTS)
"""Options of real workers and their server."""


@dataclass(frozen=True)
class DriverWords:
    """What carries a strategy out. Names are those of the command line's options, without them a run's defaults."""

    driver: str = "local"
    on_bad_gradient: str = "stop"
    record_events: bool = False
    validate_every: str = "1epoch"
    server_threads: int = 1
    """Threads of the one server process that make an update together."""
    collective: str = "auto"
    stopped_timeout: float = 30.0
    """Seconds until a stopped worker counts as hung; the same of one that waits, computes and starts."""
    idle_timeout: float = 120.0
    busy_timeout: float = 3600.0
    start_timeout: float = 600.0

    def __post_init__(self) -> None:
        check_types(self)
        check_driver(self.driver)
        check_policy(self.on_bad_gradient)
        parse_interval(self.validate_every)
        if self.server_threads < 1:
            raise StrategyError(f"server-threads={self.server_threads} should be a whole number of at least 1")
        if self.collective not in COLLECTIVES:
            raise StrategyError(f"collective {self.collective!r} is unknown: {nearest(self.collective, COLLECTIVES)}")
        for name in TIMEOUTS:
            if not 0 < getattr(self, name) < math.inf:
                raise StrategyError(f"{name.replace('_', '-')}={getattr(self, name):g} should be above 0 seconds")

    def options(self, *, resuming: bool = False, given: Collection[str] = ()) -> dict[str, Any]:
        """As the driver's `run` or `resume` takes them; what is as usual and was not `given` is left to it."""
        usual = DriverWords()

        def is_set(name: str) -> bool:
            return name in given or getattr(self, name) != getattr(usual, name)

        names = ["on_bad_gradient", "validate_every", *([] if resuming else ["record_events"])]
        if self.driver == "local":
            names += ["server_threads", "collective"]
        found = {name: getattr(self, name) for name in names if is_set(name)}
        limits = {name: getattr(self, name) for name in TIMEOUTS if is_set(name)}
        if limits and self.driver == "local":
            from paceline.training.drivers.local.hang_limits import HangLimits

            found["hang_limits"] = HangLimits(**{TIMEOUTS[name]: seconds for name, seconds in limits.items()})
        return found


def check_parts(strategy: Strategy) -> None:
    """Refuses an exchange, a correction or a server optimizer that cannot be found, before anything is loaded."""
    find_exchange(strategy.exchange)
    find_correction(strategy.correction)
    check_optimizer(strategy.server_optimizer)


def check_types(words: Any) -> None:
    """Refuses a value whose type is not its field's; a whole number may stand for a number."""
    for name, kind in typing.get_type_hints(type(words)).items():
        value = getattr(words, name)
        several = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
        allowed = tuple(typing.get_origin(k) or k for k in several)
        whole = isinstance(value, int) and not isinstance(value, bool)
        if whole and float in allowed and int not in allowed:
            object.__setattr__(words, name, float(value))
        elif not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
            expected = " or ".join(_TYPES[k] for k in allowed if k in _TYPES)
            raise StrategyError(f"{name.replace('_', '-')}={value!r} should be {expected}")


def _numbers(text: str | None, option: str) -> tuple[float, ...]:
    try:
        return tuple(float(word) for word in text.split(",")) if text else ()
    except ValueError:
        raise StrategyError(f"--{option} {text!r} should be numbers with commas between them, as 1,1,0.5") from None
