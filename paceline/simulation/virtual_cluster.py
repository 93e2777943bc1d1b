"""The simulated cluster: how fast its workers, its network and its server are, and which workers fail or join."""

from __future__ import annotations

import math
from dataclasses import dataclass

from paceline.errors import StrategyError, nearest
from paceline.simulation.durations import Duration, DurationDistribution
from paceline.testing.faults import Fault, check_faults

CHANGES = ("dies", "joins", "leaves")

ALWAYS = -1
"""In place of an incarnation: the event stays valid after a worker's death."""


@dataclass(frozen=True)
class Network:
    """A message takes `latency_s` and what `time` says, and it occupies a link for its bytes / `bandwidth`."""

    latency_s: float = 0.0
    bandwidth: float = math.inf
    """Bytes/s."""
    shared: bool = True
    """Whether all messages in one direction pass one after another through the server's link. Memory that is copied
    by each worker for itself is not shared."""
    time: DurationDistribution | Duration | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.latency_s) and self.latency_s >= 0):
            raise StrategyError(f"latency={self.latency_s:g} should be at least 0 seconds")
        if not self.bandwidth > 0:
            raise StrategyError(f"bandwidth={self.bandwidth:g} should be above 0 bytes/s")


@dataclass(frozen=True)
class Change:
    """Something that happens to a worker at a given time."""

    at_s: float
    worker: int
    what: str
    """dies (and is started again after `restart_s`), joins (is not there before), leaves (for good)."""

    def __post_init__(self) -> None:
        if self.what not in CHANGES:
            raise StrategyError(f"a worker {self.what!r} is unknown: {nearest(self.what, CHANGES)}")
        if not (math.isfinite(self.at_s) and self.at_s >= 0 and self.worker >= 0):
            raise StrategyError(f"worker {self.worker} {self.what} at {self.at_s}: both should be at least 0")


def parse_change(text: str) -> Change:
    """`WORKER:dies:SECONDS`."""
    try:
        worker, what, at_s = text.split(":")
        number, seconds = int(worker), float(at_s)
    except ValueError:
        raise StrategyError(
            f"`change={text!r}` should be WORKER:dies:SECONDS, WORKER:joins:… or WORKER:leaves:…"
        ) from None
    return Change(seconds, number, what)


@dataclass(frozen=True)
class VirtualCluster:
    """By default a step takes one second, messages and updates take no time, and no worker dies."""

    compute: DurationDistribution | Duration = DurationDistribution("constant", (1.0,))  # noqa: RUF009
    """Duration of a step."""
    server: DurationDistribution | Duration | None = None
    """Work of the server for each payload in an update."""
    network: Network | None = None
    speeds: tuple[float, ...] = ()
    """Relative speeds of worker 0, 1, …, repeated for more workers; 0.5 takes twice as long."""
    changes: tuple[Change, ...] = ()
    mean_life_s: float | None = None
    """Mean time until a worker dies at random."""
    restart_s: float = 0.0
    """Seconds from a worker's death to its restart."""

    def __post_init__(self) -> None:
        if any(not (math.isfinite(speed) and speed > 0) for speed in self.speeds):
            raise StrategyError(f"speeds={','.join(map(str, self.speeds))} should be above 0")
        if self.mean_life_s is not None and not self.mean_life_s > 0:
            raise StrategyError(f"mean_life={self.mean_life_s:g} should be above 0 seconds")
        if not (math.isfinite(self.restart_s) and self.restart_s >= 0):
            raise StrategyError(f"restart={self.restart_s:g} should be at least 0 seconds")

    def check(self, workers: int, faults: tuple[Fault, ...] = ()) -> None:
        """Checks that every change and fault is of a worker that exists or joins."""
        joins: dict[int, float] = {}
        for change in self.changes:
            if change.what == "joins":
                joins[change.worker] = min(change.at_s, joins.get(change.worker, math.inf))
        check_faults(faults, {*range(workers), *joins})
        for change in self.changes:
            what = f"change {change.worker}:{change.what}:{change.at_s:g}"
            if change.worker not in joins and change.worker >= workers:
                raise StrategyError(f"{what}: there is no worker {change.worker}, only 0 to {workers - 1}")
            if change.at_s < joins.get(change.worker, 0.0):
                raise StrategyError(f"{what}: worker {change.worker} is not there before {joins[change.worker]:g} s")
