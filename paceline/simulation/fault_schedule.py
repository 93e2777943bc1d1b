"""Faults of simulated workers: they join, die, come back and leave, at given times, at random, or on purpose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from paceline.errors import PacelineError
from paceline.simulation.virtual_cluster import ALWAYS, VirtualCluster
from paceline.simulation.virtual_store import VirtualStore
from paceline.simulation.worker_times import WorkerTimes
from paceline.strategy.coordinator import Coordinator
from paceline.testing.faults import Fault

HANG_TIMEOUT_S = 10.0
"""After so long without a heartbeat a worker counts as dead."""


class Stage(Protocol):
    """The driver as it looks from here."""

    coordinator: Coordinator
    times: WorkerTimes
    gradients: VirtualStore | None
    now_s: float
    slower_s: dict[int, float]

    def at(
        self, when_s: float, handle: Callable[[int, Any], None], worker: int, incarnation: int, what: Any
    ) -> None: ...

    def enter(self, worker: int) -> int: ...

    def join(self, worker: int) -> int | None: ...

    def freeze(self, worker: int) -> int | None: ...

    def remove(self, worker: int, what: str, *, for_good: bool) -> bool: ...


class FaultSchedule:
    def __init__(self, stage: Stage, cluster: VirtualCluster, faults: tuple[Fault, ...], seed: int) -> None:
        self.stage, self.cluster = stage, cluster
        self._deaths = np.random.default_rng([3, seed])
        self._deaths_since_update = 0
        self._left: set[int] = set()
        """Who left for good, though it may have been dead at that moment."""
        self._faults = sorted(faults, key=lambda fault: fault.at, reverse=True)

    def begin(self, workers: int) -> list[int]:
        """Enters those that are there from the beginning, and puts on the heap what will happen."""
        handlers: dict[str, Callable[[int, Any], None]] = {
            "dies": self._die,
            "joins": self._join,
            "leaves": self._leave,
        }
        for change in self.cluster.changes:
            self.stage.at(change.at_s, handlers[change.what], change.worker, ALWAYS, None)
        late = {change.worker for change in self.cluster.changes if change.what == "joins"}
        first = [worker for worker in range(workers) if worker not in late]
        for worker in first:
            self._expect_death(worker, self.stage.enter(worker))
        return first

    def updated(self) -> None:
        """An update is being made: the work goes on, and it may be time for a fault."""
        self._deaths_since_update = 0
        if self._faults:
            self.stage.at(self.stage.now_s, lambda _, __: self.meet_faults(), 0, ALWAYS, None)

    def meet_faults(self) -> None:
        """Those whose update has come."""
        while self._faults and self.stage.coordinator.version >= self._faults[-1].at:
            self._meet(self._faults.pop())

    def _meet(self, fault: Fault) -> None:
        worker, stage = fault.worker, self.stage
        if worker is None:  # nothing of a server that keeps its memory is lost
            stage.times.fault(stage.now_s, "server died", None)
        elif fault.what == "kill":
            self._die(worker, None)
        elif fault.what == "slow":
            stage.slower_s[worker] = fault.seconds
        elif fault.what == "corrupt" and stage.gradients is not None:
            stage.gradients.corrupted.add(worker)
        elif fault.what == "hang":
            incarnation = stage.freeze(worker)
            if incarnation is not None:
                stage.at(stage.now_s + HANG_TIMEOUT_S, self._die, worker, incarnation, "hung")

    def _expect_death(self, worker: int, incarnation: int) -> None:
        if self.cluster.mean_life_s is not None:
            dies_s = self.stage.now_s + self._deaths.exponential(self.cluster.mean_life_s)
            self.stage.at(dies_s, self._die, worker, incarnation, None)

    def _return(self, worker: int, _: object) -> None:
        """Somebody takes the place of who died, unless it is no longer wanted."""
        if worker not in self._left:
            self._join(worker, None)

    def _join(self, worker: int, _: object) -> None:
        self._left.discard(worker)
        incarnation = self.stage.join(worker)
        if incarnation is not None:
            self._expect_death(worker, incarnation)

    def _die(self, worker: int, why: str | None) -> None:
        if not self.stage.remove(worker, why or "died", for_good=False):
            return
        self.stage.at(self.stage.now_s + self.cluster.restart_s, self._return, worker, ALWAYS, None)
        self._deaths_since_update += 1
        if self._deaths_since_update > 1000 + 100 * len(self.stage.times.workers):
            deaths = self._deaths_since_update
            raise PacelineError(f"workers die faster than they finish their tasks: {deaths} deaths and no update")

    def _leave(self, worker: int, _: object) -> None:
        self._left.add(worker)
        self.stage.remove(worker, "left", for_good=True)
