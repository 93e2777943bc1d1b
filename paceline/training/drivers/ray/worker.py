"""The worker actor: asks the server for tasks, computes them and pushes payloads.

Where the strategy overlaps, the next task and its parameters arrive while this one is computed. A worker whose server
died joins its successor: it keeps its network, data and optimizer, and forgets the tasks it had.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from paceline.errors import PacelineError
from paceline.strategy.finite import is_finite
from paceline.strategy.instructions import Compute
from paceline.strategy.learner import Learner
from paceline.strategy.updater import Updater
from paceline.testing.faults import WorkerFaults
from paceline.training.drivers.ray.actor import Actor
from paceline.training.drivers.ray.epoch_tallies import EpochTallies
from paceline.training.drivers.ray.job import Job
from paceline.training.drivers.ray.messages import Push, Reply, ServerLost, WorkerReport
from paceline.training.drivers.ray.sent_objects import receive_objects
from paceline.training.worker_parts import worker_parts

if TYPE_CHECKING:
    from paceline.training.drivers.ray.server_link import ServerLink

RETRY_S = 0.2


class Worker(Actor):
    def __init__(self, job: Job, server: Any, number: int) -> None:
        super().__init__(job)
        self.server, self.number = server, number

    def work(self, incarnation: int) -> None:
        """Works until the run is over."""
        self._prepare(incarnation)
        while True:
            try:
                self._work()
                return
            except ServerLost:
                continue

    def _connect(self, incarnation: int) -> ServerLink:
        from paceline.training.drivers.ray.server_link import ServerLink, node_address, ray

        self.job.check_versions(node_address())
        if self.job.objects is not None:
            receive_objects(ray, self.job.objects, self.job.answer_within_s)
        return ServerLink(self.server, self.job, self.number, incarnation)

    def _prepare(self, incarnation: int) -> None:
        job = self.job
        self.link = self._connect(incarnation)
        torch.set_num_threads(job.threads)
        cache = Path(job.cache) if job.cache else None
        parts = worker_parts(job.workload, cache, job.device, job.threads, job.workers)
        self.learner = Learner(parts, job.strategy, job.workers)
        like = self.learner.local
        self.payload = torch.zeros(self.learner.payload_size, dtype=like.dtype, device=like.device)
        self.learner.bind(self.payload)
        self.updater = Updater(job.strategy, job.layout, job.workers, device=like.device)
        self.decoded = torch.empty(job.layout.parameters, dtype=like.dtype, device=like.device)
        staged = like.device.type != "cpu" or self.learner.exchange.fetch_last
        self.staging = torch.empty(self.learner.size, dtype=like.dtype, pin_memory=like.is_cuda) if staged else None
        self.faults: WorkerFaults | None = None

    # The loop

    def _work(self) -> None:
        self.tallies = EpochTallies(self.job.workload.top)
        self.tasks, self.counted_before = 0, self.steps
        self.communicating_s = self.waiting_s = 0.0
        self.began_s: float | None = None
        reply, pieces = self._join()
        sent = None
        """A call whose reply has not been received yet."""
        while not reply.over:
            if reply.task is None:
                reply, pieces = self._receive(sent or self._ask())
                sent = None
                continue
            if sent is None and self.job.strategy.overlap:
                sent = self._ask()
            push = self._carry_out(reply.task, reply.version, pieces)
            reply = Reply(self.link.generation)
            if sent is not None:
                reply, pieces = self._receive(sent)
            sent = self.link.send(self._report(), push, self.payload)
        with contextlib.suppress(ServerLost):  # the last losses
            self.link.receive(self._ask())

    def _join(self) -> tuple[Reply, list[Any]]:
        """Until a server that has begun answers; where it died Ray starts another."""
        latest_s = time.monotonic() + self.job.answer_within_s
        while time.monotonic() < latest_s:
            self.link.generation = ""
            try:
                reply, pieces = self.link.receive(self.link.send(WorkerReport()))
            except ServerLost:
                time.sleep(RETRY_S)
                continue
            if reply.generation or reply.over:
                self.link.generation = reply.generation
                return reply, pieces
        raise PacelineError(f"there was no server for {self.job.answer_within_s:g} s (start_timeout)")

    def _ask(self) -> Any:
        return self.link.send(self._report(idle=True))

    def _receive(self, sent: Any) -> tuple[Reply, list[Any]]:
        start_s = time.monotonic()
        reply, pieces = self.link.receive(sent)
        if not (reply.generation or reply.over):
            raise ServerLost
        if self.began_s is not None:  # at first it waits for the others to start
            self.waiting_s += reply.waited_s
            self.communicating_s += max(0.0, time.monotonic() - start_s - reply.waited_s)
        return reply, pieces

    def _report(self, idle: bool = False) -> WorkerReport:
        joined_s = 0.0 if self.began_s is None else time.monotonic() - self.began_s
        scores = self.tallies.scores(now=idle)
        return WorkerReport(
            self.tasks, self.steps - self.counted_before, self.communicating_s, self.waiting_s, joined_s, scores
        )

    # A task

    def _carry_out(self, task: Compute, version: int, pieces: list[Any]) -> Push:
        """Computes the payload; `pieces` are the parameters of its first fetch, if that is before its first step."""
        if self.began_s is None:
            self.began_s = time.monotonic()
        into = self.learner.local if self.staging is None else self.staging
        versions: list[int] = []

        def fetch(position: int) -> tuple[int, Tensor]:
            start_s = time.monotonic()
            found = (version, pieces) if position == 0 else self.link.fetch(task.sequence, position)
            self.link.parameters.put_into(into, found[1])
            versions.append(found[0])
            self.communicating_s += time.monotonic() - start_s
            return found[0], into

        result = self.learner.run(task, fetch, self.payload, self.tallies.tally(task.epoch))
        if self.faults is None:
            self.faults = WorkerFaults(self.job.faults, self.number, result.pulled)
        self.faults.meet(result.pulled, len(task.batches), self.payload)
        self.tasks += 1
        self.steps += len(task.batches)
        finite = is_finite(self.updater.decode(self.payload, self.decoded))
        return Push(task.sequence, result.samples, result.steps, result.pulled, finite, tuple(versions))
