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

from paceline.data.dataset import Dataset
from paceline.errors import PacelineError
from paceline.step.denormals import flush_denormals
from paceline.strategy.finite import is_finite
from paceline.strategy.instructions import Compute
from paceline.strategy.learner import Learner
from paceline.strategy.learner_state import Result
from paceline.strategy.updater import Updater
from paceline.testing.faults import WorkerFaults
from paceline.training.drivers.ray.actor import Actor
from paceline.training.drivers.ray.epoch_tallies import EpochTallies
from paceline.training.drivers.ray.job import Job
from paceline.training.drivers.ray.member_link import Dissolved, MemberLink
from paceline.training.drivers.ray.messages import Formation, Push, Reply, ServerActors, ServerLost, WorkerReport
from paceline.training.drivers.ray.sent_objects import SentObjects, receive_objects
from paceline.training.drivers.ray.timeline import WorkerSpans
from paceline.training.worker_parts import worker_parts

if TYPE_CHECKING:
    from paceline.training.drivers.ray.server_link import ServerLink
    from paceline.training.drivers.ray.shard_link import ShardedLink

RETRY_S = 0.2


class Worker(Actor):
    def __init__(self, job: Job, number: int) -> None:
        super().__init__(job)
        self.number = number

    def work(self, servers: ServerActors, incarnation: int, objects: SentObjects | None) -> None:
        """Works until the run is over."""
        self.link = self._connect(servers, incarnation, objects)
        self._prepare(None if objects is None else objects.dataset)
        while True:
            try:
                self._work()
                return
            except ServerLost:
                continue

    def _connect(
        self, servers: ServerActors, incarnation: int, objects: SentObjects | None
    ) -> ServerLink | ShardedLink:  # fmt: skip
        from paceline.training.drivers.ray.server_link import node_address, ray
        from paceline.training.drivers.ray.shard_link import link_to

        self.job.check_versions(node_address())
        if objects is not None:
            receive_objects(ray, objects, self.job.answer_within_s)
        return link_to(servers, self.job, self.number, incarnation)

    def _prepare(self, dataset: Dataset | None) -> None:
        job = self.job
        torch.set_num_threads(job.threads)
        flush_denormals()
        cache = Path(job.cache) if job.cache else None
        parts = worker_parts(job.workload, cache, job.device, job.threads, job.workers, dataset)
        shared = self.link.offered.memory if job.in_place and self.link.offered is not None else None
        local = None if shared is None else shared.parameters[0]
        self.learner = Learner(parts, job.strategy, job.workers, local=local)
        like = self.learner.local
        self.payload = torch.zeros(self.learner.payload_size, dtype=like.dtype, device=like.device)
        if shared is not None:
            self.payload = shared.payload
        self.learner.bind(self.payload)
        self.updater = Updater(job.strategy, job.layout, job.workers, device=like.device)
        self.decoded = torch.empty(job.layout.parameters, dtype=like.dtype, device=like.device)
        aside = self.learner.exchange.fetch_last or self.learner.fragments is not None
        staged = like.device.type != "cpu" or aside
        self.staging = torch.empty(self.learner.size, dtype=like.dtype, pin_memory=like.is_cuda) if staged else None
        self.faults: WorkerFaults | None = None

    # The loop

    def _work(self) -> None:
        self.tallies = EpochTallies(self.job.workload.top)
        self.tasks, self.counted_before = 0, self.steps
        self.communicating_s = self.waiting_s = 0.0
        self.began_s: float | None = None
        self.group: MemberLink | None = None
        reply, pieces = self._join()
        self.spans = WorkerSpans(self.link.clock_offset())
        push = Push()
        sent = None
        """A call whose reply has not been received yet."""
        while not reply.over:
            if reply.whole_wanted:
                whole = push._replace(size=len(self.payload), is_part=False)
                sent = self.link.send(self._report(), whole, self.payload)
            if reply.task is None:
                reply, pieces = self._receive(sent or self._ask())
                sent = None
                continue
            if sent is None and self.job.strategy.overlap:
                sent = self._ask()
            push, vector = self._carry_out(reply.task, reply, pieces)
            reply = Reply(self.link.generation)
            if sent is not None:
                reply, pieces = self._receive(sent)
            sent = self.link.send(self._report(), push, vector)
        with contextlib.suppress(ServerLost):  # the last losses
            self.link.receive(self._ask())

    def _join(self) -> tuple[Reply, list[Any]]:
        """Joins a server, waiting until one has started."""
        latest_s = time.monotonic() + self.job.answer_within_s
        while time.monotonic() < latest_s:
            try:
                reply, pieces = self.link.receive(self.link.send_join())
            except ServerLost:
                time.sleep(RETRY_S)
                continue
            if reply.generation or reply.over:
                self.link.joined(reply)
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
            now_s = time.monotonic()
            self.waiting_s += reply.waited_s
            self.communicating_s += max(0.0, now_s - start_s - reply.waited_s)
            self.spans.add("wait", start_s, now_s)
        return reply, pieces

    def _report(self, idle: bool = False) -> WorkerReport:
        joined_s = 0.0 if self.began_s is None else time.monotonic() - self.began_s
        scores = self.tallies.scores(now=idle)
        steps, spans = self.steps - self.counted_before, self.spans.take() if scores is not None else ()
        return WorkerReport(self.tasks, steps, self.communicating_s, self.waiting_s, joined_s, scores, spans)

    # A task

    def _carry_out(self, task: Compute, reply: Reply, pieces: list[Any]) -> tuple[Push, Tensor]:
        """Computes the payload; what is to be pushed: that, or this member's part of its group's mean.

        `pieces` are the parameters of its first fetch, if that is before its first step.
        """
        if self.began_s is None:
            self.began_s = time.monotonic()
        members = self._members(reply.formation)
        versions: list[int] = []

        computing_s = time.monotonic()

        def fetch(position: int) -> tuple[int, Tensor]:
            nonlocal computing_s
            start_s = time.monotonic()
            if position:
                self.spans.add("compute", computing_s, start_s)
            into = self.learner.local if self.staging is None or members is not None else self.staging
            version = reply.version
            later = position or self.learner.fragments is not None
            if later or not self._receive_parameters(pieces, reply.formation, into):
                version, found = self.link.fetch(task.sequence, position)
                self._put_fetched(task, found, into)
            versions.append(version)
            computing_s = time.monotonic()
            self.communicating_s += computing_s - start_s
            self.spans.add("fetch", start_s, computing_s)
            return version, into

        start_bucket = self._start_bucket if members is not None and self.job.buckets else None
        tally = self.tallies.tally(task.epoch)
        result = self.learner.run(task, fetch, self.payload, tally, start_bucket=start_bucket)
        self.spans.add("compute", computing_s, time.monotonic())
        if self.faults is None:
            self.faults = WorkerFaults(self.job.faults, self.number, result.pulled)
        self.faults.meet(result.pulled, len(task.batches), self.payload)
        self.tasks += 1
        self.steps += len(task.batches)
        finite = is_finite(self.updater.decoding.gradient(self.payload, self.decoded, task.fragment))
        part = self._average(task, result, finite) if members is not None else None
        vector, is_part = (self.payload, False) if part is None else (part, True)
        push = Push(
            task.sequence, result.samples, result.steps, result.pulled, finite, tuple(versions), len(vector), is_part
        )
        return push, vector

    def _put_fetched(self, task: Compute, pieces: list[Any], into: Tensor) -> None:
        """Puts what the server sent where it belongs: all parameters, or a fragment of them and the buffers."""
        fragments = self.learner.fragments
        if fragments is None or task.whole:
            self.link.parameters.put_into(into, pieces)
            return
        received, piece = self.link.parameters.joined(pieces), fragments.fetched_piece(task.fragment)
        length = piece.stop - piece.start
        into[piece], into[fragments.parameters :] = received[:length], received[length:]

    # With the other members of its group

    def _members(self, formation: Formation | None) -> MemberLink | None:
        """The link to the other members, for as long as the formation exists; None if there is none."""
        if formation is None:
            return None
        if self.group is None or self.group.formation != formation:
            self.group = None
            device = self.learner.local.device if self.job.collective == "nccl" else torch.device("cpu")
            with contextlib.suppress(Dissolved):
                self.group = MemberLink(formation, self.job, self.link.exchange_note, device, self.link.address)
        return self.group

    def _receive_parameters(self, pieces: list[Any], formation: Formation | None, into: Tensor) -> bool:
        """Puts parameters together; False: a member of the formation is gone, with its part of them."""
        if formation is None:
            self.link.parameters.put_into(into, pieces)
            return True
        if self.group is not None:
            with contextlib.suppress(Dissolved):
                self.group.gather(self.link.parameters.joined(pieces), into)
                return True
        self.group = None
        return False

    def _start_bucket(self, samples: int, bucket: int) -> None:
        if self.group is not None:
            self.group.start_bucket(self.payload, bucket)

    def _average(self, task: Compute, result: Result, finite: bool) -> Tensor | None:
        """This member's part of the mean; None: push the whole payload instead."""
        start_s = time.monotonic()
        if self.group is None:  # it was dissolved when parameters were fetched
            return None
        try:
            return self.group.average(self.payload, task, result, finite)
        except Dissolved:
            self.group = None
            return None
        finally:
            self.communicating_s += time.monotonic() - start_s
