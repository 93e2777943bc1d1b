"""The actors of a run: started, watched, and replaced when they or their nodes die.

Ray places them and starts them again; this tells the server who is gone, and gives a new server the last checkpoint.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

from paceline import errors
from paceline.errors import PacelineError, reason
from paceline.strategy.distribution import FaultRecord
from paceline.training.drivers.ray.connection import Shares
from paceline.training.drivers.ray.job import Job
from paceline.training.drivers.ray.messages import ServerState, Status
from paceline.training.drivers.ray.placing import nodes_of_workers
from paceline.training.drivers.ray.sent_objects import SentObjects
from paceline.training.drivers.ray.servers import STATUS_EVERY_S, Servers
from paceline.training.drivers.ray.start_limits import StartLimits
from paceline.training.drivers.ray.worker_handle import WorkerHandle
from paceline.training.settings import DriverSettings

RETRY_S = 1.0
FAULTS_KEPT = 1000
MOST_FAILURES = 5
"""Consecutive failures without a task or an update in between after which the run fails."""


class Supervisor:
    def __init__(
        self, ray: Any, job: Job, objects: SentObjects | None, shares: Shares, limits: DriverSettings,
        restored: Callable[[ServerState], None], on_wait: Callable[[], None],
    ) -> None:  # fmt: skip
        """`restored` is called with the state that a new server starts from, `on_wait` while it starts."""
        from paceline.training.drivers.ray.worker import Worker

        self.ray, self.job, self.limits, self.restored, self.on_wait = ray, job, limits, restored, on_wait
        self.began_s = time.monotonic()
        self.faults: list[FaultRecord] = []
        self.fault_count = 0
        self.to_inject = sorted((f for f in job.faults if f.what in ("kill", "hang")), key=lambda f: f.at)
        self.last = Status("", begun=False)
        self.server_failures = 0
        self.start_limits = StartLimits(ray, shares, limits.start_timeout, self.began_s)
        self._asked_s = self.began_s
        self._asked: Any = None
        self._dead: dict[int, int] = {}
        """The last incarnations of workers that died, until the server has heard of it."""
        self._told: dict[int, int] = {}
        """Those that the server is told with the call that is waited for."""
        self.servers = Servers(ray, job, shares, limits, on_wait)
        make = ray.remote(Worker).options
        options = {"num_cpus": shares.cpus, "num_gpus": shares.gpus, "max_concurrency": 2, "max_restarts": -1}
        actors = [
            make(**options, scheduling_strategy=where).remote(job, number)
            for number, where in enumerate(nodes_of_workers(ray, shares, job.workers, job.groups))
        ]
        self.workers = [WorkerHandle(ray, actor, self.servers.actors, objects) for actor in actors]

    def start(self, state: ServerState) -> None:
        self.servers.start(state)
        for worker in self.workers:
            worker.start()

    # How they are doing

    def poll(self, within_s: float) -> Status:
        """Deals with what happens within `within_s`, or sooner; how the run is doing then."""
        if self._asked is None:
            self._told = dict(self._dead)
            self._asked = self.servers.server.status.remote(
                STATUS_EVERY_S, self.last.epochs_done, tuple(self._told.items())
            )
            self._asked_s = time.monotonic()
        elif time.monotonic() - self._asked_s > self.limits.stopped_timeout + STATUS_EVERY_S:
            self.ray.kill(
                self.servers.server, no_restart=False
            )  # it hangs; the answer that is waited for will be an error
            self._asked_s = time.monotonic()
        for worker in self.workers:
            if worker.working is None and 0.0 < worker.try_again_s <= time.monotonic():
                worker.try_again_s = 0.0
                worker.start(again=True)
        working = {w.working: number for number, w in enumerate(self.workers) if w.working is not None}
        ready, _ = self.ray.wait([*working, self._asked], num_returns=1, timeout=within_s)
        for reference in ready:
            if reference in working:
                self._ended(working[reference])
            else:
                self._asked = None
                self._take_status(reference)
        self.start_limits.check(self.last, self.workers, time.monotonic())
        self._check_hangs()
        self._inject()
        return self.last

    def _take_status(self, reference: Any) -> None:
        try:
            status: Status = self.ray.get(reference)
        except (self.ray.exceptions.RayActorError, self.ray.exceptions.ObjectLostError):
            return self._server_ended()
        if not status.begun:
            return self._server_ended()
        if status.failure is not None:
            kind, text = status.failure
            raise getattr(errors, kind)(text)
        if status.version > self.last.version:
            self.server_failures = 0
        self.last = status
        self._dead = {number: died for number, died in self._dead.items() if self._told.get(number) != died}
        if self.servers.replica is not None:
            self.servers.replica.keep(status.replicated, self._asked_s)
        if status.lost_shard:
            return self._server_ended("shard died")
        return None

    def _server_ended(self, what: str = "server died") -> None:
        """Ray starts the server again, from the replica or the last checkpoint, and the workers join it.

        One that only could not be reached goes on as it is.
        """
        self.server_failures += 1
        if self.server_failures > MOST_FAILURES:
            raise PacelineError(f"the server died {MOST_FAILURES} times in a row without an update")
        if not self.servers.begin_again():
            return
        state = self.servers.state
        assert state is not None
        self.note(what, None, f"continued from update {state.version}")
        for worker in self.workers:  # they join again from now on
            worker.started_s = time.monotonic()
        self.restored(state)

    def _ended(self, number: int) -> None:
        """Handles the end of a worker actor: the run is over, it failed, or its process or node died."""
        worker = self.workers[number]
        try:
            self.ray.get(worker.working)
            how = "left"
        except self.ray.exceptions.RayTaskError as error:
            raise self._failure(f"worker {number}", error.cause) from error
        except self.ray.exceptions.RayError as error:
            how = _how(error)
        if self.last.finished or (how == "left" and self._is_over()):
            worker.working = None
            return
        tasks = self.last.by_worker[number].tasks if self.last.by_worker else 0
        worker.consecutive_failures = 0 if tasks else worker.consecutive_failures + 1
        if worker.consecutive_failures >= MOST_FAILURES:
            raise PacelineError(f"worker {number} {how}, {MOST_FAILURES} times in a row without finishing a task")
        self._dead[number] = worker.incarnation
        if worker.incarnation > max(1, self.last.joined[number] if self.last.joined else 0):
            worker.working, worker.try_again_s = None, time.monotonic() + RETRY_S  # there is no room for it yet
            return
        self.note("died", number, how)
        worker.start()

    def _is_over(self) -> bool:
        """A worker that is told so ends before the launcher hears of it."""
        with contextlib.suppress(self.ray.exceptions.RayError):
            status: Status = self.ray.get(self.servers.server.status.remote(0.0, 0), timeout=self.limits.start_timeout)
            return status.finished or status.failure is not None
        return False

    def _failure(self, who: str, error: BaseException) -> PacelineError:
        """The error of an actor as one line."""
        if isinstance(error, PacelineError):
            return type(error)(f"{who}: {error}")
        return PacelineError(f"{who}: {reason(error)}")

    def _check_hangs(self) -> None:
        """Kills workers that hang; Ray restarts them."""
        for number, worker in enumerate(self.workers):
            if self.last.by_worker and self.last.by_worker[number].tasks:  # else it starts: that has another limit
                verdict = worker.hung(self.limits, computing=number in self.last.computing)
                if verdict is not None:
                    self.note("hung", number, verdict)

    def note(self, what: str, worker: int | None, note: str) -> None:
        self.fault_count += 1
        if len(self.faults) < FAULTS_KEPT:
            self.faults.append(FaultRecord(time.monotonic() - self.began_s, what, worker, None, note))

    def _inject(self) -> None:
        """Injects the faults that are due, into actors that have done something since they started."""
        if self.last.began_ago_s is None:
            return
        for fault in [fault for fault in self.to_inject if fault.at <= self.last.version]:
            if fault.worker is None or self.last.by_worker[fault.worker].tasks:
                self.to_inject.remove(fault)
                actor = self.servers.server if fault.worker is None else self.workers[fault.worker].actor
                actor.meet.remote(fault.what)

    def stop(self) -> None:
        """Ends all actors."""
        self.servers.stop()
        for worker in self.workers:
            with contextlib.suppress(Exception):
                self.ray.kill(worker.actor)


def _how(error: Exception) -> str:
    text = str(error)
    return "lost its node" if "node" in text.lower() and "died" in text.lower() else "was killed"
