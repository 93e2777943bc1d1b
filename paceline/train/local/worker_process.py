"""A worker: `python -m paceline.train.local.worker_process SETTINGS`, started by the launcher.

It takes tasks from its mailbox, fetches parameters, computes, and leaves payloads in its slot. It holds nothing
that others wait for but the task in hand.
"""

from __future__ import annotations

import gc
import math
import sys
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from paceline.step.build import assemble, load_data
from paceline.step.feeder import FileFeeder
from paceline.step.placement import available_cores
from paceline.step.step import Parts
from paceline.strategy.instructions import Compute
from paceline.strategy.learner import Learner
from paceline.strategy.straight import StraightWay
from paceline.testing.faults import Fault
from paceline.train.local import mailbox
from paceline.train.local.child import as_child
from paceline.train.local.collective import SHARED
from paceline.train.local.doorbell import Doorbell
from paceline.train.local.memory import Memory
from paceline.train.local.own_updates import OwnUpdates
from paceline.train.local.pulling import read_version
from paceline.train.local.settings import Settings
from paceline.train.local.span_log import COMPUTE, FETCH, WAIT, SpanLog
from paceline.train.local.words import LINE, SLOT_WORDS, Control, Of, Payload
from paceline.train.local.worker_score import WorkerScore
from paceline.workload import with_settings

if TYPE_CHECKING:
    from paceline.train.local.adding_up import AddingUp
    from paceline.train.local.worker_clock import WorkerClock

LOOK_UP_S = 0.5
SHORT_S = 0.02


class Worker:
    def __init__(self, settings: Settings, memory: Memory) -> None:
        self.settings, self.memory, self.number = settings, memory, settings.number
        self.words = memory.slots[self.number * SLOT_WORDS : (self.number + 1) * SLOT_WORDS]
        self.group = settings.strategy.group_of(self.number, settings.workers)
        self.bell = Doorbell(memory, self.number, settings.wake_workers[self.number], settings.parent)
        self.bell_of_server = Doorbell(memory, settings.workers, settings.wake_server)
        self.beat()
        self.spans, self.free_ns = SpanLog(memory, self.number), time.monotonic_ns()
        own = memory.sizes.own_updates
        self.own_updates = OwnUpdates(settings, memory, self.spans, self.beat) if own else None
        self.learner = Learner(_parts(settings), settings.strategy, settings.workers, local=self._draft())
        self.beat()
        self.payloads, self.pulled = memory.payloads[self.number], memory.pulled
        for payload in self.payloads:
            self.learner.bind(payload)
        self.straight = StraightWay.of(self.learner, self.payloads)
        self.staging = self._staging()
        self.adding_up = self._adding_up()
        self.score = WorkerScore(memory, self.number, settings.workload.top)
        self.fetched = memory.fetched[self.number]
        self.fetches = 0
        self.wanted, self.began_ns = 2, 0
        self.task_ns = 1_000_000_000
        """What a task takes; as long as that is not known the server gives few at a time."""
        self.faults = [fault for fault in settings.faults if fault.worker == self.number]
        self.slower_s = 0.0
        self.clock = self._clock()

    def _clock(self) -> WorkerClock | None:
        if not self.settings.measure:
            return None
        from paceline.train.local.worker_clock import WorkerClock

        return WorkerClock(self, Path(self.settings.measure))

    def _adding_up(self) -> AddingUp | None:
        """Where the members of a group add up their payloads among themselves."""
        if self.settings.collective == SHARED:
            return None
        from paceline.train.local.adding_up import AddingUp

        return AddingUp(self.settings, self.memory, self.learner, self.spans, self.beat)

    def _draft(self) -> Tensor | None:
        """Where the network's parameters lie, if the worker writes new versions straight there: what it computes on
        next is mostly the version that it made itself."""
        s = self.settings.strategy
        if self.own_updates is None or self.memory.sizes.pulled:
            return None
        if s.exchange != "gradient" or s.fetch_every != 1 or s.push_every != 1:
            return None
        with self.own_updates.pen:  # what a former life had published in it is carried over
            return self.own_updates.draft

    def _staging(self) -> Tensor | None:
        """Where fetched parameters go first; None: straight into the network."""
        learner = self.learner
        direct = self.settings.strategy.exchange == "gradient" and learner.local.device.type == "cpu"
        if direct or self.memory.sizes.pulled:
            return None
        on_gpu = learner.local.device.type == "cuda"
        return torch.empty(learner.size, dtype=learner.local.dtype, pin_memory=on_gpu)

    def beat(self) -> None:
        self.words[Of.BEAT] = time.monotonic_ns()

    def work(self) -> None:
        """Until the launcher ends us."""
        words = self.words
        done = words[Of.GIVEN]
        version = self.memory.control[Control.VERSION]
        self.faults = [fault for fault in self.faults if fault.what == "slow" or fault.at >= version]
        if self.clock is not None:
            self.clock.begin()
        words[Of.WANTED] = self.wanted
        words[Of.JOINED] = self.settings.life
        self.bell_of_server.ring()
        tasks: deque[Compute] = deque()
        while True:
            if not tasks:
                tasks.extend(mailbox.next_tasks(self.memory, self.number, self.settings.life, done))
            task = tasks.popleft() if tasks else self._awaited(done)
            self._wait_for_room(task.sequence % 2)
            self.began_ns = time.monotonic_ns()
            if self.adding_up is not None:
                self.adding_up.begin(task)
            if self.straight is None or self.faults or not self._go_straight(task):
                with torch.inference_mode(False):
                    self._carry_out(task)
            done = task.sequence
            if self.clock is not None:
                self.clock.end_task()

    def _awaited(self, done: int) -> Compute:
        start_ns = time.monotonic_ns()
        patience_s = SHORT_S
        while True:
            self.bell.lie_down()
            tasks = mailbox.next_tasks(self.memory, self.number, self.settings.life, done)
            if tasks:
                self.bell.get_up()
                self._waited(start_ns)
                return tasks[0]
            if not self.bell.sleep(patience_s):
                patience_s = LOOK_UP_S
                if self.clock is not None:
                    self.clock.write_now_and_then()
                self.score.write()  # there is time for it now; with every short wait it would cost a third of a step
            self.beat()

    def _carry_out(self, task: Compute) -> None:
        learner, words, place = self.learner, self.words, task.sequence % 2
        if self.faults:
            self._meet_faults()
        self.fetches, self.place = 0, place
        on_device = self.adding_up.payload if self.adding_up is not None else None
        out = self.payloads[place] if on_device is None else on_device
        learner.begin(task, out)
        tally = self.score.tally(task.epoch)
        positions = set(task.fetches)
        if self.pulled and 0 not in positions:  # it is computed on what an earlier task fetched
            pulled = self.pulled[self.number]
            pulled[place].copy_(pulled[1 - place])
        for position in range(len(task.batches)):
            if position in positions:
                learner.fetch(*self._fetch(task.version))
            learner.step(tally)
            words[Of.BEAT] = time.monotonic_ns()
            if self.slower_s:
                time.sleep(self.slower_s)
        elastic = self.settings.strategy.exchange == "elastic"
        result = learner.finish(self._fetch(task.version) if elastic else None)
        if self.faults:
            self._corrupt(out)
        self._hand_over(task, result.samples, result.pulled)

    def _go_straight(self, task: Compute) -> bool:
        """The most frequent kind of task, with as little around the arithmetic as possible; False: not this one."""
        assert self.straight is not None
        place = task.sequence % 2
        self.fetches, self.place = 0, place
        version, flat = self._fetch(task.version)
        if flat is not self.learner.local:
            self.learner.local.copy_(flat)
        tally = self.score.tally(task.epoch)
        samples = self.straight.gradient(task.epoch, task.batches[0], place, tally)
        if samples:
            self._hand_over(task, samples, version)
        return samples > 0

    def _hand_over(self, task: Compute, samples: int, pulled: int) -> None:
        """The payload is whole; the word that says so comes last, unless the worker itself makes an update of it."""
        words, line = self.words, Of.PAYLOAD + task.sequence % 2 * LINE
        words[line + Payload.SAMPLES] = samples
        words[line + Payload.PULLED] = pulled
        words[line + Payload.FETCHES] = self.fetches
        now_ns = words[Of.BEAT] = time.monotonic_ns()
        self.spans.add(COMPUTE, self.free_ns, now_ns)
        self.free_ns = now_ns
        if self.adding_up is not None:
            slot = self.payloads[task.sequence % 2]
            words[line + Payload.SUMMED] = self.adding_up.finish(slot, samples, len(task.batches))
            self.free_ns = time.monotonic_ns()
        words[Of.TASKS] += 1
        words[Of.STEPS] += len(task.batches)
        if self.own_updates is not None and self._update(self.own_updates, task, pulled):
            if words[Of.GIVEN] - task.sequence <= self.wanted // 2:
                self.bell_of_server.ring()
        else:
            words[line + Payload.READY] = task.sequence
            self.bell_of_server.ring()
            if self.own_updates is not None and not self.settings.strategy.overlap:
                self._wait_for_room(task.sequence % 2)  # it has its next task, but is not to begin it yet
        self.score.write_now_and_then()

    def _update(self, own: OwnUpdates, task: Compute, pulled: int) -> bool:
        """Whether an update could be made of the payload here."""
        made = own.make(task, pulled)
        self.free_ns = time.monotonic_ns()
        self.task_ns += (self.free_ns - self.began_ns - self.task_ns) // 8
        if task.sequence % 4 == 0:
            self.wanted = self.words[Of.WANTED] = own.wanted(self.task_ns)
        return made

    def _wait_for_room(self, place: int) -> None:
        """A payload, and what it was computed on, stay until they are acknowledged."""
        words = self.words
        ready = words[Of.PAYLOAD + place * LINE + Payload.READY]
        if words[Of.ACKNOWLEDGED + place] == ready:
            return
        start_ns = time.monotonic_ns()
        self.bell.lie_down()
        while words[Of.ACKNOWLEDGED + place] != ready:
            self.bell.sleep(LOOK_UP_S)
            self.beat()
            self.bell.lie_down()
        self.bell.get_up()
        self._waited(start_ns)

    def _waited(self, start_ns: int) -> None:
        now_ns = self.free_ns = time.monotonic_ns()
        if self.words[Of.TASKS] or self.settings.life > 1:  # at first it waits for the others to have started
            self.words[Of.WAITING_NS] += now_ns - start_ns
        self.spans.add(WAIT, start_ns, now_ns)

    def _fetch(self, version: int | None) -> tuple[int, Tensor]:
        start_ns = time.monotonic_ns()
        memory = self.memory
        if self.pulled:
            into = self.pulled[self.number][self.place]
        else:
            into = self.learner.local if self.staging is None else self.staging
        if version is not None and memory.snapshots and memory.snapshot_versions[self.group] == version + 1:
            into.copy_(memory.snapshots[self.group])
            found = version
        elif self.own_updates is not None:
            found = self.own_updates.copy(into)
        else:  # the round of that version is over if it is not the newest: what comes of it will be dropped
            self.into = into
            found, retries = read_version(memory, self.number, self._copy)
            if retries:
                self.words[Of.RETRIES] += retries
        self.fetched[self.place, self.fetches] = found
        self.fetches += 1
        now_ns = self.free_ns = time.monotonic_ns()
        self.words[Of.COMMUNICATION_NS] += now_ns - start_ns
        self.spans.add(FETCH, start_ns, now_ns)
        return found, into

    def _copy(self, version: int) -> None:
        self.into.copy_(self.memory.parameters[version % 2])

    def _meet_faults(self) -> None:
        version = self.memory.control[Control.VERSION]
        for fault in self.faults:
            if fault.what == "slow" and version >= fault.at:
                self.slower_s = fault.seconds

    def _corrupt(self, payload: Tensor) -> None:
        version = self.memory.control[Control.VERSION]
        due: list[Fault] = [fault for fault in self.faults if fault.what == "corrupt" and version >= fault.at]
        if due:
            self.faults.remove(due[0])
            payload[0] = math.nan


def _parts(settings: Settings) -> Parts:
    cache = Path(settings.cache) if settings.cache else None
    workload = with_settings(settings.workload, {"threads": settings.threads, "device": settings.device})
    parts = assemble(workload, load_data(workload, cache), torch.device(settings.device))
    if isinstance(parts.feeder, FileFeeder):
        parts.feeder.readers = max(1, available_cores() // settings.workers)
    return parts


def main(settings: Settings) -> None:
    with as_child(settings) as memory:
        worker = Worker(settings, memory)
        gc.collect()
        gc.freeze()  # what is there now stays; looking through it again and again would be for nothing
        with torch.inference_mode():
            worker.work()


if __name__ == "__main__":
    main(Settings.of(sys.argv[1]))
