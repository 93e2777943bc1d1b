"""A worker process: takes tasks from its mailbox, fetches parameters, computes, and pushes payloads.

Where workers commit, it makes the update of its payload by itself, while the numbers are still in the cache and nobody
has to be woken; the server hears of it later. Else the payload waits in its slot for the server.
"""

from __future__ import annotations

import os
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from paceline.strategy.finite import is_finite
from paceline.strategy.instructions import Compute
from paceline.strategy.learner import Learner
from paceline.strategy.learner_state import Result
from paceline.strategy.updater import Updater
from paceline.testing.faults import WorkerFaults
from paceline.training.drivers.local import mailbox
from paceline.training.drivers.local.child import Bells
from paceline.training.drivers.local.doorbell import Doorbell
from paceline.training.drivers.local.fields import LINE, GroupField, HeaderField, PayloadField, SlotField
from paceline.training.drivers.local.settings import ProcessSettings
from paceline.training.drivers.local.shared_memory import SharedMemory
from paceline.training.drivers.local.span_log import COMPUTE, FETCH, WAIT
from paceline.training.drivers.local.worker_score import WorkerScore
from paceline.training.drivers.local.worker_store import WorkerStore
from paceline.training.worker_parts import worker_parts

if TYPE_CHECKING:
    from paceline.training.group_average import GroupAverage
    from paceline.training.worker_clock import WorkerClock

POLL_INTERVAL_S = 0.5
SHORT_WAIT_S = 0.02
SPIN_NS = 2_000_000
"""How long a worker looks for its group's commit before it sleeps, at most; else for as long as a task takes."""
KEEP_CORE_NS = 200_000
"""How long it keeps its core while it does. A yielded core may be gone for milliseconds on a busy machine."""
SUPPLY_NS = 40_000_000
"""Tasks for so long are enough for the server to bring more."""


class Worker:
    def __init__(self, settings: ProcessSettings, memory: SharedMemory, bells: Bells) -> None:
        self.settings, self.memory, self.number = settings, memory, settings.number
        self.words, self.group, self.members = memory.slot(self.number), settings.group, settings.group_members
        self.bell = Doorbell(memory, self.number, bells.workers[self.number])
        self.server_bell = Doorbell(memory, settings.workers, bells.server)
        self.member_bells = [Doorbell(memory, w, bells.workers[w]) for w in self.members if w != self.number]
        self.beat()
        self.free_ns = time.monotonic_ns()
        cache = Path(settings.cache) if settings.cache else None
        parts = worker_parts(settings.workload, cache, settings.device, settings.threads, settings.workers)
        self.learner = Learner(parts, settings.strategy, settings.workers)
        self.beat()
        self.commits = memory.sizes.workers_commit
        self.updater = Updater(settings.strategy, settings.layout, settings.workers)
        self.staging = self._staging()
        self.store = WorkerStore(memory, self.number, self.updater, self.beat, self._newest())
        self.spans = self.store.spans
        for payload in [self.store.payload] if self.commits else memory.payloads[self.number]:
            self.learner.bind(payload)
        if not self.learner.keeps_parameters and self.learner.local.device.type == "cpu":
            self.store.fetched = self.learner.local
        self.decoded = torch.empty(settings.layout.parameters, dtype=settings.layout.torch_dtype)
        self.average = self._group_average()
        self.score = WorkerScore(memory, self.number, settings.workload.top)
        self.fetches, self.place = 0, 0
        self.task_ns, self.began_ns, self.wanted = 1_000_000_000, 0, 2
        """How long a task takes; as long as that is not known the server gives few at a time."""
        self.faults = WorkerFaults(settings.faults, self.number, memory.version)
        self.clock = self._clock()

    def _clock(self) -> WorkerClock | None:
        if not self.settings.measure:
            return None
        from paceline.training.worker_clock import WorkerClock

        methods = [
            (self, "_carry_out", "communicate", ""),
            (self, "_fetch", "communicate", ""),
            (self, "_commit", "update", ""),
            (self, "_await_task", "idle", "waiting for a task"),
            (self, "_await_turn", "idle", "waiting for others"),
            *([(self.average, "push", "communicate", "")] if self.average is not None else []),
        ]
        return WorkerClock(self.learner, self.number, methods, Path(self.settings.measure))

    def _group_average(self) -> GroupAverage | None:
        """Where the members of a group average their payloads among themselves, with torch.distributed."""
        if self.settings.collective == "shared":
            return None
        from paceline.training.group_average import GroupAverage

        rank, meet = self.members.index(self.number), f"file://{self.settings.rendezvous}"
        return GroupAverage(self.settings.collective, meet, rank, len(self.members), self.learner, self.beat)

    def _staging(self) -> Tensor | None:
        """Where fetched parameters are copied first; None: directly into the network."""
        learner = self.learner
        aside = learner.exchange.fetch_last or learner.fragments is not None
        if self.memory.fetched or (learner.local.device.type == "cpu" and not aside):
            return None
        on_gpu = learner.local.device.type == "cuda"
        return torch.empty(learner.size, dtype=learner.local.dtype, pin_memory=on_gpu)

    def _newest(self) -> Tensor | None:
        """The network's own parameters, where they are the newest ones or none at all: then they need not be copied."""
        learner = self.learner
        changed = learner.keeps_parameters or learner.changes_parameters
        kept = self.updater.correction is not None or self.memory.fetched or self.memory.snapshots
        return None if changed or kept or self.staging is not None else learner.local

    def beat(self) -> None:
        self.words[SlotField.BEAT] = time.monotonic_ns()

    # The loop

    def work(self) -> None:
        """Works until the launcher ends this process."""
        words = self.words
        done = words[SlotField.GIVEN]
        if self.clock is not None:
            self.clock.begin()
        words[SlotField.PUSHED] = 0
        words[SlotField.WANTED] = self.wanted
        words[SlotField.JOINED] = self.settings.incarnation
        self.server_bell.notify()
        tasks: deque[Compute] = deque()
        with torch.no_grad():  # the learner differentiates, and says so
            while True:
                if not tasks:
                    tasks.extend(mailbox.next_tasks(self.memory, self.number, self.settings.incarnation, done))
                task = tasks.popleft() if tasks else self._await_task(done)
                self._await_turn(task)
                self.began_ns = self.free_ns
                self._carry_out(task)
                done = task.sequence
                if self.clock is not None:
                    self.clock.end_task()

    def _await_task(self, done: int) -> Compute:
        start_ns = time.monotonic_ns()
        timeout_s = SHORT_WAIT_S
        while True:
            self.bell.arm()
            tasks = mailbox.next_tasks(self.memory, self.number, self.settings.incarnation, done)
            if tasks:
                self.bell.disarm()
                self._waited(start_ns)
                return tasks[0]
            if not self.bell.wait(timeout_s):
                timeout_s = POLL_INTERVAL_S
                if self.clock is not None:
                    self.clock.write_if_due()
                self.score.write()  # there is time for it now; after every short wait it would cost a third of a step
            self.beat()

    def _await_turn(self, task: Compute) -> None:
        """Waits until the payload's slot is free and, if workers commit, the group's previous round is committed."""
        if self._is_turn(task):
            return
        start_ns = time.monotonic_ns()
        self.learner.source.prepare(task.epoch, self.learner.turns.batch(task.batches[0]))
        patience_ns = min(SPIN_NS, self.task_ns)
        while (waited_ns := time.monotonic_ns() - start_ns) < patience_ns and self.commits:
            if self._is_turn(task):
                self._waited(start_ns)
                return
            if waited_ns > KEEP_CORE_NS:  # lets the server run here rather than where a worker computes
                os.sched_yield()
        while True:
            self.bell.arm()
            if self._is_turn(task):
                break
            late = not self.bell.wait(POLL_INTERVAL_S) and self.commits and task.round is not None
            if late and self.store.commit_round(self.group, self.members):  # whoever should have done it may be dead
                self._notify_members()
            self.beat()
        self.bell.disarm()
        self._waited(start_ns)

    def _await_update(self, task: Compute) -> None:
        """With fragments: waits for the update of the round before, whose fragment the task takes over."""
        start_ns, word = time.monotonic_ns(), self.group * LINE + GroupField.FIRST_OPEN
        while True:
            self.bell.arm()
            if task.round is None or self.memory.groups[word] >= task.round:
                break
            self.bell.wait(POLL_INTERVAL_S)
            self.beat()
        self.bell.disarm()
        self._waited(start_ns)

    def _is_turn(self, task: Compute) -> bool:
        if self.commits:
            return task.round is None or self.memory.word(HeaderField.ROUNDS + self.group) >= task.round
        words = self.words
        for place in (0, 1) if not self.settings.strategy.overlap else (task.sequence % 2,):
            ready = words[SlotField.PAYLOAD + place * LINE + PayloadField.READY]
            if words[SlotField.RELEASED + place] != ready:
                if place == task.sequence % 2 or task.round is None:
                    return False  # else it may be another's part of this task's round: both are waited for
                return mailbox.is_of_round(self.memory, self.number, ready, task.round)
        return True

    def _waited(self, start_ns: int) -> None:
        now_ns = self.free_ns = time.monotonic_ns()
        if self.words[SlotField.TASKS] or self.settings.incarnation > 1:  # at first it waits for the others to start
            self.words[SlotField.WAITING_NS] += now_ns - start_ns
        self.spans.add(WAIT, start_ns, now_ns)

    # A task

    def _carry_out(self, task: Compute) -> None:
        place = self.memory.place(task.sequence)
        self.fetches, self.place = 0, place
        self.task = task
        if self.memory.fetched and 0 not in task.fetches and not self.commits:  # an earlier task fetched for it
            mine = self.memory.fetched[self.number]
            mine[place].copy_(mine[1 - place])
        slot = self.store.payload if self.commits else self.memory.payload(self.number, task.sequence)
        out = slot if self.average is None else self.average.payload(slot)
        start_bucket = None if self.average is None else self.average.start_bucket(task, out)
        result = self.learner.run(task, self._fetch, out, self.score.tally(task.epoch), self.beat, start_bucket)
        if self.faults.slow or self.faults.corrupt:
            self.faults.meet(self.memory.version, len(task.batches), out)
        self._push(task, result, out)

    def _fetch(self, position: int) -> tuple[int, Tensor]:
        """Fetches the parameters for a step of the task: those of the round, or the newest."""
        task, store = self.task, self.store
        if self.learner.fragments is not None:
            self._await_update(task)
        start_ns = time.monotonic_ns()
        if self.memory.fetched:
            into = self.memory.fetched[self.number][self.place]
        else:
            into = self.learner.local if self.staging is None else self.staging
        if task.round is not None and position < len(task.batches):
            found = store.read_for_round(into, self.group, task.round)
        else:
            found = store.read(into)
        self.memory.fetched_versions[self.number, self.place, self.fetches] = found
        self.fetches += 1
        now_ns = self.free_ns = time.monotonic_ns()
        self.words[SlotField.COMMUNICATION_NS] += now_ns - start_ns
        self.spans.add(FETCH, start_ns, now_ns)
        return found, into

    def _push(self, task: Compute, result: Result, out: Tensor) -> None:
        words, line = self.words, SlotField.PAYLOAD + self.place * LINE
        finite = is_finite(self.updater.decoding.gradient(out, self.decoded, task.fragment))
        averaged = 0
        if self.average is not None:
            slot = self.memory.payload(self.number, task.sequence)
            averaged = self.average.push(task, out, slot, result.samples, finite)
        words[line + PayloadField.SAMPLES] = result.samples
        words[line + PayloadField.PULLED] = result.pulled
        words[line + PayloadField.FETCHES] = self.fetches
        words[line + PayloadField.FINITE] = finite
        words[line + PayloadField.AVERAGED] = averaged
        now_ns = words[SlotField.BEAT] = time.monotonic_ns()
        self.spans.add(COMPUTE, self.free_ns, now_ns)
        self.free_ns = now_ns
        words[SlotField.TASKS] += 1
        words[SlotField.STEPS] += len(task.batches)
        if self.commits:
            self._commit(task, result.pulled, finite)
        else:
            words[line + PayloadField.READY] = task.sequence
            self.server_bell.notify()
        self.score.write_if_due(self.free_ns)

    def _commit(self, task: Compute, pulled: int, finite: bool) -> None:
        """Commits the update if this payload makes or completes one, and notifies the server if tasks run out."""
        if task.round is not None:
            if self.store.push_to_round(task, self.group, self.members):
                self._notify_members()
        elif finite:
            self.store.commit_own(task, self.group, pulled)
        else:
            self.store.refuse_own(task)
        now_ns = self.free_ns = time.monotonic_ns()
        self.task_ns += (now_ns - self.began_ns - self.task_ns) // 8
        if task.sequence % 4 == 0:
            self.wanted = min(max(SUPPLY_NS // max(self.task_ns, 1), 2), self.memory.sizes.ahead)
            self.words[SlotField.WANTED] = self.wanted
        if not finite or self.words[SlotField.GIVEN] - task.sequence <= self.wanted // 2:
            self.server_bell.notify()

    def _notify_members(self) -> None:
        for bell in self.member_bells:
            bell.notify()
