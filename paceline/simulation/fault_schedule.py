"""Faults of simulated workers: they join, die, come back and leave, at given times, at random, or on purpose."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from paceline.errors import PacelineError
from paceline.simulation.virtual_cluster import ALWAYS, VirtualCluster
from paceline.testing.faults import Fault

if TYPE_CHECKING:
    from paceline.simulation.virtual_driver import VirtualDriver

HANG_TIMEOUT_S = 10.0
"""A worker without a heartbeat for this long counts as dead."""


class FaultSchedule:
    def __init__(self, driver: VirtualDriver, cluster: VirtualCluster, faults: tuple[Fault, ...], seed: int) -> None:
        self.driver, self.cluster = driver, cluster
        self._deaths = np.random.default_rng([3, seed])
        self._deaths_since_update = 0
        self._left: set[int] = set()
        """Workers that left for good; one may have been dead at that moment."""
        self._faults = sorted(faults, key=lambda fault: fault.at, reverse=True)

    def begin(self, workers: int) -> list[int]:
        """Starts the workers that take part from the beginning, and schedules the changes."""
        handlers: dict[str, Callable[[int, Any], None]] = {
            "dies": self._die,
            "joins": self._join,
            "leaves": self._leave,
        }
        for change in self.cluster.changes:
            self.driver.at(change.at_s, handlers[change.what], change.worker, ALWAYS, None)
        late = {change.worker for change in self.cluster.changes if change.what == "joins"}
        first = [worker for worker in range(workers) if worker not in late]
        for worker in first:
            self._expect_death(worker, self.driver.enter(worker))
        return first

    def updated(self) -> None:
        """An update is made: workers make progress, and a fault may be due."""
        self._deaths_since_update = 0
        if self._faults:
            self.driver.at(self.driver.now_s, lambda _, __: self.meet_faults(), 0, ALWAYS, None)

    def meet_faults(self) -> None:
        """Injects the faults that are due."""
        while self._faults and self.driver.coordinator.version >= self._faults[-1].at:
            self._meet(self._faults.pop())

    def _meet(self, fault: Fault) -> None:
        worker, driver = fault.worker, self.driver
        if worker is None:  # nothing of a server that keeps its memory is lost
            driver.times.fault(driver.now_s, "server died", None)
        elif fault.what == "kill":
            self._die(worker, None)
        elif fault.what == "slow":
            driver.slower_s[worker] = fault.seconds
        elif fault.what == "corrupt" and driver.gradients is not None:
            driver.gradients.corrupted.add(worker)
        elif fault.what == "hang":
            incarnation = driver.freeze(worker)
            if incarnation is not None:
                driver.at(driver.now_s + HANG_TIMEOUT_S, self._die, worker, incarnation, "hung")

    def _expect_death(self, worker: int, incarnation: int) -> None:
        if self.cluster.mean_life_s is not None:
            dies_s = self.driver.now_s + self._deaths.exponential(self.cluster.mean_life_s)
            self.driver.at(dies_s, self._die, worker, incarnation, None)

    def _return(self, worker: int, _: object) -> None:
        """A dead worker is started again, unless it was to leave meanwhile."""
        if worker not in self._left:
            self._join(worker, None)

    def _join(self, worker: int, _: object) -> None:
        self._left.discard(worker)
        incarnation = self.driver.join(worker)
        if incarnation is not None:
            self._expect_death(worker, incarnation)

    def _die(self, worker: int, why: str | None) -> None:
        if not self.driver.remove(worker, why or "died", for_good=False):
            return
        self.driver.at(self.driver.now_s + self.cluster.restart_s, self._return, worker, ALWAYS, None)
        self._deaths_since_update += 1
        if self._deaths_since_update > 1000 + 100 * len(self.driver.times.workers):
            deaths = self._deaths_since_update
            raise PacelineError(f"workers die faster than they finish their tasks: {deaths} deaths and no update")

    def _leave(self, worker: int, _: object) -> None:
        self._left.add(worker)
        self.driver.remove(worker, "left", for_good=True)
