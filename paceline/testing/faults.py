"""Faults to inject: which process is killed, hangs, is slow or pushes a non-finite payload, and when.

A fault is data, and every driver injects it: the local one with signals to real processes, the virtual one in
simulated time.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from paceline.errors import StrategyError, nearest

KINDS = ("kill", "hang", "slow", "corrupt")


@dataclass(frozen=True)
class Fault:
    """A fault of one worker, or of the server, after a number of updates."""

    what: str
    """kill: the process ends at once. hang: it stops answering. slow: every step takes `seconds` longer.
    corrupt: one payload is not finite."""
    at: int = 0
    """Number of updates of the run before the fault."""
    worker: int | None = None
    """The worker; None is the server, for kill and hang."""
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.what not in KINDS:
            raise StrategyError(f"a fault {self.what!r} is unknown: {nearest(self.what, KINDS)}")
        if self.worker is None and self.what in ("slow", "corrupt"):
            raise StrategyError(f"{self.what} is a fault of a worker: say which")
        if self.at < 0 or self.seconds < 0:
            raise StrategyError(f"a fault at {self.at} for {self.seconds:g} s: neither may be below 0")


class WorkerFaults:
    """The faults that a worker's process meets by itself, as one that starts at a version of the parameters."""

    def __init__(self, faults: Iterable[Fault], worker: int, version: int) -> None:
        mine = [fault for fault in faults if fault.worker == worker]
        self.slow = [fault for fault in mine if fault.what == "slow"]
        self.corrupt = [fault for fault in mine if fault.what == "corrupt" and fault.at >= version]

    def meet(self, version: int, steps: int, payload: Any) -> None:
        """Called after a task of `steps` steps: delays the worker, or makes its payload, a tensor, not finite."""
        for fault in self.slow:
            if version >= fault.at:
                time.sleep(fault.seconds * steps)
        if due := [fault for fault in self.corrupt if version >= fault.at]:
            self.corrupt.remove(due[0])
            payload[0] = math.nan


def check_faults(faults: Iterable[Fault], workers: Collection[int]) -> None:
    """Whether each of them is of one of these workers, or of the server."""
    for fault in faults:
        if fault.worker is not None and fault.worker not in workers:
            raise StrategyError(f"{fault.what} is a fault of worker {fault.worker}: there is none, only {len(workers)}")


def random_kills(
    *, workers: int, updates: int, of_workers: int, of_server: int = 0, seed: int = 0
) -> tuple[Fault, ...]:
    """Kills of random workers and of the server, at random updates below `updates`."""
    rng = random.Random(seed)
    kills = [Fault("kill", rng.randrange(updates), rng.randrange(workers)) for _ in range(of_workers)]
    kills += [Fault("kill", rng.randrange(updates)) for _ in range(of_server)]
    return tuple(sorted(kills, key=lambda fault: fault.at))
