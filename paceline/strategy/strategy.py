"""A strategy is data: who waits for whom, what is exchanged and how often, and what happens to a late payload."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from paceline.errors import StrategyError, nearest

EXCHANGES = ("gradient", "parameters", "elastic")


def _whole(name: str, value: int | None, least: int) -> None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
        raise StrategyError(f"{name}={value!r} should be a whole number of at least {least}")


@dataclass(frozen=True)
class Strategy:
    """One group of all workers is synchronous, groups of one are asynchronous, anything between is mixed."""

    name: str = "sync"
    groups: int | None = 1
    """How many groups; None: every worker is one by itself."""
    exchange: str = "gradient"
    """What a worker pushes: the gradients since its last push added up, what its local steps changed in the
    parameters, or its elastic pull on the centre."""
    fetch_every: int = 1
    """Steps between two fetches; 0: only when a worker joins."""
    push_every: int = 1
    local_step: bool = False
    """Whether a worker steps by itself between two fetches."""
    overlap: bool = False
    """Whether a worker goes on before its payload was applied."""
    correction: str = "none"
    """What is done to a late payload: none, constant:LAMBDA, adaptive:LAMBDA, staleness, or module:function."""
    server_optimizer: str = ""
    """The rule at the server, with its rate: adagrad:0.5, nesterov:0.7, sgd:1; nothing: the workload's own."""
    softness: int | None = None
    """n of n-softsync: an update waits for workers / n payloads."""
    bound: int | None = None
    """How many pushes the fastest group may be ahead of the slowest."""
    spares: int = 0
    """A synchronous step does not wait for so many of its workers."""
    warm_start: int = 0
    """The first worker makes so many updates alone."""
    own_pass: bool = False
    """Every worker goes over all data, instead of its share of it."""
    alpha: float = 0.9
    """Elastic averaging: alpha / workers is the share of the distance that is given way."""

    def __post_init__(self) -> None:
        if self.exchange not in EXCHANGES:
            raise StrategyError(f"exchange {self.exchange!r} is unknown: {nearest(self.exchange, EXCHANGES)}")
        _whole("groups", self.groups, 1)
        _whole("fetch-every", self.fetch_every, 0)
        _whole("push-every", self.push_every, 1)
        _whole("softness", self.softness, 1)
        _whole("bound", self.bound, 0)
        _whole("spares", self.spares, 0)
        _whole("warm-start", self.warm_start, 0)
        if not (math.isfinite(self.alpha) and self.alpha > 0):
            raise StrategyError(f"alpha={self.alpha:g} should be above 0")
        if self.bound is not None and self.groups == 1:
            raise StrategyError(
                f"a bound is for asynchronous workers; with {self.name} all of them wait for each other"
            )
        if self.spares and self.groups != 1:
            raise StrategyError("spares are for one synchronous group")
        if self.softness is not None and self.groups is not None:
            raise StrategyError("softness is for asynchronous workers, groups of one")
        if self.correction != "none" and self.exchange != "gradient":
            raise StrategyError(f"a correction is for gradients; {self.name} exchanges {self.exchange}")

    def group_of(self, worker: int, workers: int) -> int:
        """Neighbours share a group; a worker beyond the first `workers` joins one in turn."""
        if self.groups is None:
            return worker
        return worker * self.groups // workers if worker < workers else worker % self.groups

    def payloads_an_update(self, workers: int) -> int:
        """How many groups' payloads an update waits for."""
        return 1 if self.softness is None else max(1, workers // self.softness)

    def check(self, workers: int, batches: int | None = None) -> None:
        """Whether it can run with so many workers on so many batches an epoch."""
        if workers < 1:
            raise StrategyError(f"workers={workers} should be at least 1")
        if self.groups is not None and workers % self.groups:
            raise StrategyError(f"{self.groups} groups do not divide {workers} workers")
        if self.spares >= workers:
            raise StrategyError(f"spares={self.spares} leave none of {workers} workers to wait for")
        if self.softness is not None and self.softness > workers:
            raise StrategyError(f"softness={self.softness} is more than {workers} workers")
        if batches is not None and not self.own_pass and workers > batches:
            raise StrategyError(
                f"{workers} workers share {batches} batches an epoch: use fewer workers or a smaller batch"
            )


PRESETS: dict[str, Strategy] = {
    s.name: s
    for s in (
        Strategy("sync"),
        Strategy("towers"),
        Strategy("downpour", groups=None, overlap=True, local_step=True),
        Strategy("delay-compensated", groups=None, correction="adaptive:2"),
        Strategy("mixed", groups=2, correction="none"),
        Strategy("stale-sync", groups=None, bound=2),
        Strategy("staleness-aware", groups=None, correction="staleness"),
        Strategy("softsync", groups=None, overlap=True, softness=1, correction="staleness"),
        Strategy("backup", spares=1),
        Strategy("local-sgd", exchange="parameters", local_step=True, fetch_every=500, push_every=500,
                 server_optimizer="nesterov:0.7"),
        Strategy("easgd", groups=None, exchange="elastic", local_step=True, fetch_every=0, push_every=10,
                 server_optimizer="sgd:1"),
    )
}  # fmt: skip
"""The published strategies. Any other is one of these with fields replaced, or a `Strategy` of one's own."""


def preset(name: str, **changes: Any) -> Strategy:
    """A published strategy by name, with some of its fields replaced."""
    if name not in PRESETS:
        raise StrategyError(f"no strategy {name!r}: {nearest(name, PRESETS)}")
    unknown = changes.keys() - {field.name for field in dataclasses.fields(Strategy)}
    if unknown:
        key = sorted(unknown)[0]
        raise StrategyError(
            f"a strategy has no {key!r}: {nearest(key, [f.name for f in dataclasses.fields(Strategy)])}"
        )
    made = dataclasses.replace(PRESETS[name], **changes)
    _check_name(made)
    return made


def _check_name(made: Strategy) -> None:
    """Whether it still is what its name says, and does what was asked for."""
    if made.name in ("sync", "towers") and made.groups != 1:
        if made.groups is None:
            raise StrategyError(f"{made.name} is one group of all workers: for groups of one use delay-compensated")
        raise StrategyError(f"{made.name} is one group of all workers: for groups={made.groups} use the strategy mixed")
    kind = made.correction.partition(":")[0]
    if made.groups == 1 and kind in ("constant", "adaptive", "staleness"):
        raise StrategyError(
            f"correction={made.correction} is for late payloads, and with {made.name} none is late: "
            "use the strategy delay-compensated, or mixed with several groups"
        )
