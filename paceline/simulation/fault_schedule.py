"""Which simulated workers are alive: they join, die, come back and leave, at given times, at random, or on purpose."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from paceline.errors import PacelineError
from paceline.simulation.virtual_cluster import ALWAYS
from paceline.testing.faults import Fault

if TYPE_CHECKING:
    from paceline.simulation.virtual_driver import VirtualDriver

HANG_TIMEOUT_S = 10.0
"""A worker without a heartbeat for this long counts as dead."""


class FaultSchedule:
    def __init__(self, driver: VirtualDriver, faults: tuple[Fault, ...], seed: int) -> None:
        self.driver, self.cluster = driver, driver.cluster
        self.incarnations: dict[int, int] = {}
        """The incarnations of the workers that are alive."""
        self.hanging: set[int] = set()
        """Workers that hang, which is not noticed yet."""
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
            self._start(worker)
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
            self._hang(worker)

    def _start(self, worker: int) -> None:
        """A worker is started, under a new incarnation; what an earlier one was doing is void."""
        driver = self.driver
        incarnation = self.incarnations[worker] = driver.times.joined(worker, driver.now_s).starts
        driver.tasks[worker] = []
        if driver.gradients is not None:
            driver.gradients.joined(worker)
        if self.cluster.mean_life_s is not None:
            dies_s = driver.now_s + self._deaths.exponential(self.cluster.mean_life_s)
            driver.at(dies_s, self._die, worker, incarnation, None)

    def _hang(self, worker: int) -> None:
        """A worker hangs; what it was doing is void, and after some time it counts as dead."""
        if worker in self.incarnations and worker not in self.hanging:
            self.hanging.add(worker)
            self.incarnations[worker] += 1 << 32
            noticed_s = self.driver.now_s + HANG_TIMEOUT_S
            self.driver.at(noticed_s, self._die, worker, self.incarnations[worker], "hung")

    def _return(self, worker: int, _: object) -> None:
        """A dead worker is started again, unless it was to leave meanwhile."""
        if worker not in self._left:
            self._join(worker, None)

    def _join(self, worker: int, _: object) -> None:
        self._left.discard(worker)
        if worker not in self.incarnations:
            self._start(worker)
            self.driver.engine.joined(worker)

    def _die(self, worker: int, why: str | None) -> None:
        if not self._end(worker, why or "died"):
            return
        self.driver.engine.died(worker)
        self.driver.at(self.driver.now_s + self.cluster.restart_s, self._return, worker, ALWAYS, None)
        self._deaths_since_update += 1
        if self._deaths_since_update > 1000 + 100 * len(self.driver.times.workers):
            deaths = self._deaths_since_update
            raise PacelineError(f"workers die faster than they finish their tasks: {deaths} deaths and no update")

    def _leave(self, worker: int, _: object) -> None:
        self._left.add(worker)
        self._end(worker, "left")
        self.driver.engine.died(worker, for_good=True)

    def _end(self, worker: int, what: str) -> bool:
        """A worker is gone; whether it was alive."""
        if self.incarnations.pop(worker, None) is None:
            return False
        driver = self.driver
        self.hanging.discard(worker)
        driver.tasks[worker] = []
        driver.times.left(worker, driver.now_s)
        driver.times.fault(driver.now_s, what, worker)
        if driver.gradients is not None:
            driver.gradients.died(worker)
        driver.ask_again()
        return True
