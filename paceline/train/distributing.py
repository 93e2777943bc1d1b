"""How training is distributed, in the words of a command line or a file: checked, and made a strategy and a cluster."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from paceline.errors import StrategyError, nearest
from paceline.simulate.durations import Spread, parse_spread
from paceline.simulate.virtual_cluster import Network, VirtualCluster, parse_change
from paceline.strategy.strategy import Strategy, preset

DRIVERS = ("local", "virtual")
_TYPES = {bool: "true or false", int: "a whole number", float: "a number", str: "text", list: "a list"}


def check_driver(driver: str) -> None:
    if driver not in DRIVERS:
        raise StrategyError(f"--driver {driver!r} is unknown: {nearest(driver, DRIVERS)}")


@dataclass(frozen=True)
class StrategyWords:
    """A published strategy and what is changed in it. Names are those of the command line's options."""

    strategy: str
    workers: int | None = None
    groups: str | int | None = None
    """`4x8`: four synchronous groups of eight workers; or how many groups."""
    compensation: str | None = None
    correction: str | None = None
    fetch_every: int | None = None
    push_every: int | None = None
    server_optimizer: str | None = None
    bound: int | None = None
    spares: int | None = None
    period: int | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Any other field of a strategy."""

    def __post_init__(self) -> None:
        check_types(self)

    def build(self) -> tuple[Strategy, int]:
        """The strategy, and how many workers carry it out."""
        from paceline.strategy.corrections import parse_correction
        from paceline.strategy.server_rule import parse_optimizer

        changes: dict[str, Any] = {
            "fetch_every": self.fetch_every, "push_every": self.push_every, "bound": self.bound,
            "server_optimizer": self.server_optimizer, "spares": self.spares,
            "correction": self._correction(),
        }  # fmt: skip
        base = preset(self.strategy)
        if self.period is not None:
            if base.exchange == "gradient":
                raise StrategyError(f"--period is for exchanging parameters; with {base.name} use --push-every")
            if self.period < 1:
                raise StrategyError(f"period={self.period} should be a whole number of at least 1")
            changes["push_every"] = self.period
            changes["fetch_every"] = self.period if base.exchange == "parameters" else None
        count, workers = self._groups()
        changes["groups"] = count
        given = {key: value for key, value in changes.items() if value is not None}
        if twice := sorted(given.keys() & self.fields.keys()):
            raise StrategyError(f"{twice[0]} is given twice: as an option and with --strategy-set {twice[0]}")
        strategy = preset(self.strategy, **given, **self.fields)
        parse_correction(strategy.correction)
        parse_optimizer(strategy.server_optimizer)
        workers = workers if workers is not None else (self.workers if self.workers is not None else 2)
        strategy.check(workers)
        return strategy, workers

    def _correction(self) -> str | None:
        if self.compensation is None:
            return self.correction
        if self.correction is not None:
            raise StrategyError("--compensation and --correction exclude each other")
        if self.compensation.partition(":")[0] not in ("constant", "adaptive"):
            raise StrategyError(f"--compensation {self.compensation!r} should be constant:LAMBDA or adaptive:LAMBDA")
        return self.compensation

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
        def spread(option: str, text: str | float | None) -> Spread | None:
            return None if text is None else parse_spread(str(text), option)

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
