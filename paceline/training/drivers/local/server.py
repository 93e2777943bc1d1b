"""The server process: the engine over shared memory. It gives out tasks and makes the updates that workers do not make.

All it knows is in shared memory, so that its successor continues where it was: with the version committed last, and the
payloads not released yet.
"""

from __future__ import annotations

import contextlib
import os
import time

from paceline.strategy.coordinator import Coordinator
from paceline.strategy.engine import Engine
from paceline.strategy.instructions import Apply, Compute
from paceline.strategy.updater import Updater
from paceline.training.drivers.local import batch_status, commit_log, mailbox
from paceline.training.drivers.local.child import Bells
from paceline.training.drivers.local.doorbell import Doorbell
from paceline.training.drivers.local.fields import (
    LINE,
    SLOT_WORDS,
    ControlField,
    GroupField,
    HeaderField,
    PayloadField,
    SlotField,
)
from paceline.training.drivers.local.recovery import recover
from paceline.training.drivers.local.settings import ProcessSettings
from paceline.training.drivers.local.shared_memory import REFUSALS_KEPT, SharedMemory
from paceline.training.drivers.local.store import SharedStore

POLL_INTERVAL_S = 0.2


class Server:
    """The engine's store and transport on this machine: shared memory and mailboxes."""

    def __init__(self, settings: ProcessSettings, memory: SharedMemory, bells: Bells) -> None:
        self.settings, self.memory = settings, memory
        self.control, self.slots = memory.control, memory.slots
        workers = settings.workers
        self.bell = Doorbell(memory, workers, bells.server)
        self.worker_bells = [Doorbell(memory, number, bells.workers[number]) for number in range(workers)]
        self.launcher_bell = Doorbell(memory, workers + 1, bells.launcher)
        self.workers_commit = memory.sizes.workers_commit
        ahead = memory.sizes.ahead if self.workers_commit else 2 if settings.strategy.overlap else 1
        updater = Updater(settings.strategy, settings.layout, workers, settings.server_threads)
        self.coordinator = Coordinator(
            settings.strategy, workers, settings.layout.batches, settings.layout.epochs,
            ahead=ahead, slots=memory.sizes.ahead, turns=updater.turns.count,
        )  # fmt: skip
        self.engine = Engine(self.coordinator, self, self, settings.on_bad_gradient)
        self.store = SharedStore(memory, workers, updater, self.beat)
        self.incarnations = [0] * workers
        """Which incarnation of each worker the engine knows as alive."""
        self.seen = [[0, 0] for _ in range(workers)]
        """The sequence of each payload that was dealt with."""
        self.recovered: dict[int, int] = {}
        """Incarnations that a server found when it started, which keep what they have."""
        self.events = 0
        """Rows of the commit log that were read."""

    def beat(self) -> None:
        self.control[ControlField.SERVER_BEAT] = time.monotonic_ns()

    def work(self) -> None:
        """Serves until the launcher ends this process."""
        self.beat()
        if self.workers_commit and hasattr(os, "SCHED_BATCH"):  # it need not interrupt a worker at once to bring tasks
            with contextlib.suppress(OSError):
                os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        with self.store.lock:
            self._finish_epochs()
            recover(self)
        self._show_open_rounds()
        self.control[ControlField.SERVER_READY] = self.settings.incarnation
        self.launcher_bell.notify()
        while True:
            self.bell.arm()
            if not self._poll():
                self.bell.wait(POLL_INTERVAL_S)
            self._show_open_rounds()
            self.beat()
            if self.coordinator.finished and not self.control[ControlField.FINISHED]:
                self.control[ControlField.FINISHED] = 1
                self.launcher_bell.notify()

    # What has happened

    def _poll(self) -> bool:
        """Reports new events to the engine; returns whether there were any."""
        slots, joined = self.slots, []
        happened = self._read_commits()
        for worker in range(self.settings.workers):
            slot = worker * SLOT_WORDS
            if not self.workers_commit:
                happened |= self._read_payloads(worker, slot)
            incarnation, dead = slots[slot + SlotField.JOINED], slots[slot + SlotField.DEAD]
            known = self.incarnations[worker]
            if known and (dead >= known or incarnation > known):  # a successor may join before its death is read
                self._died(worker)
                happened = True
            if incarnation > max(dead, self.incarnations[worker]):
                joined.append((worker, incarnation))
        if joined and not self._others_start():
            for worker, incarnation in joined:
                self.incarnations[worker] = incarnation
                if self.recovered.get(worker) != incarnation:
                    self.coordinator.starts_anew(worker)
            self.engine.joined(*(worker for worker, _ in joined))
            return True
        return happened

    def _others_start(self) -> bool:
        """Waits until all workers have started, so that the first rounds are complete."""
        slots = [self.memory.slot(worker) for worker in range(self.settings.workers)]
        return any(
            s[SlotField.INCARNATION] <= 1 and not s[SlotField.JOINED] and not s[SlotField.DEAD] for s in slots
        )  # fmt: skip

    def _read_commits(self) -> bool:
        """Reports updates and refusals from the commit log, in order; returns whether there were any."""
        if not self.workers_commit or self.events == (last := self.memory.word(HeaderField.EVENTS)):
            return False
        self.bell.disarm()
        while self.events < last:
            self.events += 1
            event = commit_log.read_event(self.memory, self.events)
            self.coordinator.set_ahead(event.worker, self.slots[event.worker * SLOT_WORDS + SlotField.WANTED])
            if event.kind == commit_log.COMMITTED:
                self.engine.committed(event.worker, event.sequence, event.pulled)
            else:
                self.engine.refused(event.worker, event.sequence)
        return True

    def _read_payloads(self, worker: int, slot: int) -> bool:
        """Reports payloads that wait in workers' slots; returns whether there were any."""
        seen = self.seen[worker]
        first = slot + SlotField.PAYLOAD + PayloadField.READY
        ready = (self.slots[first], self.slots[first + LINE])
        happened = False
        for place in (0, 1) if ready[0] < ready[1] else (1, 0):
            if ready[place] > seen[place]:
                for member, sequence in self.whole_payload(worker, ready[place]):
                    if sequence > self.seen[member][sequence % 2]:
                        self.bell.disarm()
                        self.seen[member][sequence % 2] = sequence
                        self.take_payload(member, sequence)
                        happened = True
        return happened

    def whole_payload(self, worker: int, sequence: int) -> list[tuple[int, int]]:
        """The payload, as worker and sequence. A mean that members made among themselves is all of theirs, or none.

        Until each of them has delivered its part, one may die, and then all start again with their batches.
        """
        found = mailbox.get(self.memory, worker, sequence)
        averaged = self.slots[self.memory.payload_line(worker, sequence) + PayloadField.AVERAGED]
        if not averaged or found is None:
            return [(worker, sequence)]
        strategy, workers = self.settings.strategy, self.settings.workers
        number, parts = found[1].round, []
        for member in strategy.members_of(strategy.group_of(worker, workers), workers):
            delivered = self._delivered(member)
            parts += [(member, s) for s in delivered if mailbox.is_of_round(self.memory, member, s, number)]
        return parts if len(parts) == found[1].parts else []

    def _delivered(self, worker: int) -> list[int]:
        """Sequences of the payloads in a worker's slot that are not released."""
        slot = worker * SLOT_WORDS
        ready = [self.slots[slot + SlotField.PAYLOAD + place * LINE + PayloadField.READY] for place in (0, 1)]
        released = self.slots[slot + SlotField.RELEASED : slot + SlotField.RELEASED + 2]
        return [sequence for place, sequence in enumerate(ready) if sequence != released[place]]

    def take_payload(self, worker: int, sequence: int) -> None:
        """A payload is whole."""
        line = self.memory.payload_line(worker, sequence)
        if self.store.log is not None and (found := mailbox.get(self.memory, worker, sequence)) is not None:
            with self.store.lock:  # one that is to be dropped changed its worker, too
                self.store.log.task(found[1], found[0], self.memory.header)
        finite = bool(self.slots[line + PayloadField.FINITE])
        self.engine.pushed(worker, sequence, self.slots[line + PayloadField.PULLED], finite)

    def _died(self, worker: int) -> None:
        """Handles the death of a worker; its unfinished tasks are reassigned."""
        with self.store.lock:
            self._read_commits()
            self.store.withdraw(worker)
            for sequence in self._delivered(worker):
                if sequence > self.seen[worker][sequence % 2]:  # part of a mean that not all have delivered
                    self.seen[worker][sequence % 2] = sequence
                    self.slots[worker * SLOT_WORDS + SlotField.RELEASED + sequence % 2] = sequence
            self.incarnations[worker] = 0
            self.engine.died(worker)
        self.control[ControlField.RETURNED] = self.coordinator.ledger.returned

    # The engine's ports

    def commit(self, order: Apply) -> bool:
        self.store.commit(order)
        return True

    def _show_open_rounds(self) -> None:
        """Where fragments are exchanged, workers wait for the update of the round before."""
        if self.settings.strategy.fragments is None:
            return
        for number, group in self.coordinator.groups.items():
            word = number * LINE + GroupField.FIRST_OPEN
            if group.first_open > self.memory.groups[word]:
                self.memory.groups[word] = group.first_open
                for worker in group.members:
                    self.worker_bells[worker].notify()

    def discard(self, task: Compute, refused: bool) -> None:
        if refused:
            count = self.control[ControlField.REFUSALS]
            if count < REFUSALS_KEPT:
                self.memory.refusals[count] = task.worker, task.sequence, task.epoch, task.batches[0]
            self.control[ControlField.REFUSALS] = count + 1
        if not self.workers_commit:  # else the worker has closed them
            self.store.close_batches(task, refused)

    def assign(self, task: Compute) -> None:
        if task.round is not None:
            group = self.settings.strategy.group_of(task.worker, self.settings.workers)
            word = group * LINE + GroupField.PLANNED
            self.memory.groups[word] = max(self.memory.groups[word], task.round + 1)
        steps = self.coordinator.steps_since_fetch(task.worker)
        mailbox.put(self.memory, task, self.incarnations[task.worker], steps)
        self.worker_bells[task.worker].notify()

    def release(self, worker: int, sequence: int) -> None:
        if self.slots[self.memory.payload_line(worker, sequence) + PayloadField.READY] == sequence:
            self.slots[worker * SLOT_WORDS + SlotField.RELEASED + sequence % 2] = sequence
            self.worker_bells[worker].notify()

    def announce(self, epoch: int) -> None:
        """Hands the parameters of a finished epoch to the launcher for validation."""
        while not self.store.keep_epoch(epoch):  # it still has to take those of two epochs ago
            self.bell.arm()
            self.bell.wait(POLL_INTERVAL_S)
            self.beat()
        memory = self.memory
        counts = batch_status.counts(memory, epoch)
        assert sum(counts) == memory.sizes.batches, f"{counts} of {memory.sizes.batches} batches are closed"
        memory.totals[epoch] = counts
        self.control[ControlField.EPOCHS_DONE] = epoch + 1
        self.launcher_bell.notify()

    def _finish_epochs(self) -> None:
        """A server that died between the last update of an epoch, or of two at once, and the word that says so."""
        epoch = self.control[ControlField.EPOCHS_DONE]
        while epoch < self.settings.layout.epochs and batch_status.closed(self.memory, epoch).all():
            self.announce(epoch)
            epoch += 1
