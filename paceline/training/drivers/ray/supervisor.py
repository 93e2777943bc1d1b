"""The actors of a run: started, watched, and replaced when they or their nodes die.

Ray places them and starts them again; this tells the server who is gone, and gives a new server the last checkpoint.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from typing import Any

from paceline import errors
from paceline.errors import PacelineError, reason
from paceline.strategy.distribution import FaultRecord
from paceline.training.drivers.ray.connection import Shares
from paceline.training.drivers.ray.job import Job
from paceline.training.drivers.ray.messages import ServerState, Status
from paceline.training.drivers.ray.server import Server
from paceline.training.drivers.ray.worker_handle import WorkerHandle
from paceline.training.settings import DriverSettings

STATUS_EVERY_S = 0.2
FAULTS_KEPT = 1000
MOST_FAILURES = 5
"""Consecutive failures without a task or an update in between after which the run fails."""
REJOIN_WITHIN_S = 10.0
"""A new server waits this long for all workers; one whose node is gone may have no room."""


class Supervisor:
    def __init__(
        self, ray: Any, job: Job, shares: Shares, limits: DriverSettings, restored: Callable[[ServerState], None],
        on_wait: Callable[[], None],
    ) -> None:  # fmt: skip
        """`restored` is called with the state that a new server begins from, `on_wait` while it starts."""
        from paceline.training.drivers.ray.worker import Worker

        self.ray, self.job, self.limits, self.restored, self.on_wait = ray, job, limits, restored, on_wait
        self.began_s = time.monotonic()
        self.faults: list[FaultRecord] = []
        self.fault_count = 0
        self.to_inject = sorted((f for f in job.faults if f.what in ("kill", "hang")), key=lambda f: f.at)
        self.last = Status("", begun=False)
        self.state: ServerState | None = None
        """What a new server begins from."""
        self.server_failures = 0
        self.alone_since_s = self.began_s
        self._asked_s = self.began_s
        self._asked: Any = None
        self.server = (
            ray.remote(Server)
            .options(
                num_cpus=job.server_threads if job.server_threads > 1 else 0,
                max_concurrency=2 * job.workers + 8,
                max_restarts=-1,
                scheduling_strategy="SPREAD",
            )
            .remote(job)
        )
        make = ray.remote(Worker).options(
            num_cpus=shares.cpus, num_gpus=shares.gpus, max_concurrency=2, max_restarts=-1, scheduling_strategy="SPREAD"
        )
        self.workers = [WorkerHandle(ray, make.remote(job, self.server, number)) for number in range(job.workers)]

    def start(self, state: ServerState) -> None:
        self.state = state
        for worker in self.workers:
            worker.start()
        self._begin(state, math.inf)

    def _begin(self, state: ServerState, join_within_s: float) -> None:
        """Lets a new server begin; one that dies meanwhile is started again, for as long as a start may take."""
        latest_s = time.monotonic() + self.limits.start_timeout
        began = self.server.begin.remote(state, join_within_s)
        while time.monotonic() < latest_s:
            self.on_wait()
            if self.ray.wait([began], timeout=STATUS_EVERY_S)[0]:
                try:
                    self.ray.get(began)
                    return
                except self.ray.exceptions.RayActorError:
                    began = self.server.begin.remote(state, join_within_s)
        raise PacelineError(f"the server did not start within {self.limits.start_timeout:g} s (start_timeout)")

    # How they are doing

    def poll(self, within_s: float) -> Status:
        """Deals with what happens within `within_s`, or sooner; how the run is doing then."""
        if self._asked is None:
            self._asked = self.server.status.remote(STATUS_EVERY_S, self.last.epochs_done)
            self._asked_s = time.monotonic()
        elif time.monotonic() - self._asked_s > self.limits.stopped_timeout + STATUS_EVERY_S:
            self.ray.kill(self.server, no_restart=False)  # it hangs; the answer that is waited for will be an error
            self._asked_s = time.monotonic()
        working = {w.working: number for number, w in enumerate(self.workers) if w.working is not None}
        ready, _ = self.ray.wait([*working, self._asked], num_returns=1, timeout=within_s)
        for reference in ready:
            if reference in working:
                self._ended(working[reference])
            else:
                self._asked = None
                self._take_status(reference)
        self._check_start()
        self._check_hangs()
        self._inject()
        return self.last

    def _take_status(self, reference: Any) -> None:
        try:
            status: Status = self.ray.get(reference)
        except self.ray.exceptions.RayActorError:
            return self._server_ended()
        if not status.begun:
            return self._server_ended()
        if status.failure is not None:
            kind, text = status.failure
            raise getattr(errors, kind)(text)
        if status.version > self.last.version:
            self.server_failures = 0
        self.last = status
        return None

    def _server_ended(self) -> None:
        """Ray starts the server again; it goes back to the last checkpoint, and the workers join it."""
        self.server_failures += 1
        if self.server_failures > MOST_FAILURES:
            raise PacelineError(f"the server died {MOST_FAILURES} times in a row without an update")
        assert self.state is not None
        self.note("server died", None, f"continued from update {self.state.version}")
        self._begin(self.state, REJOIN_WITHIN_S)
        for worker in self.workers:  # they join again from now on
            worker.started_s = time.monotonic()
        self.restored(self.state)

    def _ended(self, number: int) -> None:
        """A worker's work is over: the run is, or something failed, or its process or node is gone."""
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
        self.note("died", number, how)
        self.server.died.remote(number, worker.incarnation)
        worker.start()

    def _is_over(self) -> bool:
        """A worker that is told so ends before the launcher hears of it."""
        with contextlib.suppress(self.ray.exceptions.RayError):
            status: Status = self.ray.get(self.server.status.remote(0.0, 0), timeout=self.limits.start_timeout)
            return status.finished or status.failure is not None
        return False

    def _failure(self, who: str, error: BaseException) -> PacelineError:
        """The error of an actor, as one line."""
        if isinstance(error, PacelineError):
            return type(error)(f"{who}: {error}")
        return PacelineError(f"{who}: {reason(error)}")

    def _check_start(self) -> None:
        limit_s, now_s = self.limits.start_timeout, time.monotonic()
        if self.last.began_ago_s is None:
            for number, worker in enumerate(self.workers):
                if now_s - worker.started_s > limit_s:
                    raise PacelineError(
                        f"worker {number} did not start within {limit_s:g} s (start_timeout): "
                        "the cluster may be busy with other work; see `ray status`"
                    )

        if self.last.alive or self.last.finished or not self.last.begun:
            self.alone_since_s = now_s
        elif now_s - self.alone_since_s > limit_s:
            raise PacelineError(
                f"no worker was alive for {limit_s:g} s (start_timeout): the cluster has no room for one"
            )

    def _check_hangs(self) -> None:
        """Kills workers that hang; Ray starts them again."""
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
        """Injects the faults that are due, into who has done something since it started."""
        if self.last.began_ago_s is None:
            return
        for fault in [fault for fault in self.to_inject if fault.at <= self.last.version]:
            if fault.worker is None or self.last.by_worker[fault.worker].tasks:
                self.to_inject.remove(fault)
                actor = self.server if fault.worker is None else self.workers[fault.worker].actor
                actor.meet.remote(fault.what)

    # What the launcher asks the server

    def ask(self, method: str, *arguments: Any) -> Any:
        """What a method of the server returns; None: the server died, which `poll` deals with."""
        with contextlib.suppress(self.ray.exceptions.RayActorError, self.ray.exceptions.ObjectLostError):
            try:
                return self.ray.get(getattr(self.server, method).remote(*arguments), timeout=self.limits.start_timeout)
            except self.ray.exceptions.GetTimeoutError:
                limit_s = self.limits.start_timeout
                raise PacelineError(f"the server did not answer within {limit_s:g} s (start_timeout)") from None
        return None

    def snapshot(self) -> ServerState:
        """The state of the server now, or, if it just died, the one it will continue from."""
        found: ServerState | None = self.ask("snapshot")
        if found is not None:
            self.state = found
        assert self.state is not None
        return self.state

    def stop(self) -> None:
        """Ends all actors."""
        for actor in (*(worker.actor for worker in self.workers), self.server):
            with contextlib.suppress(Exception):
                self.ray.kill(actor)


def _how(error: Exception) -> str:
    text = str(error)
    return "lost its node" if "node" in text.lower() and "died" in text.lower() else "was killed"
