"""The parameters in shared memory: read one version, commit an update, keep an epoch's parameters.

Version v is in buffer v % 2, with the optimizer's state, the correction's state, what became of every batch and the
staleness counts of that version. A new version is written beside the one there is; one word publishes all of it. So an
update is whole or not there, whoever dies when. Server and workers commit with the same code.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from torch import Tensor

from paceline.strategy.gradient_mean import GroupContribution, Payload
from paceline.strategy.instructions import Apply, Compute, Contribution
from paceline.strategy.updater import Updater
from paceline.training.drivers.local import batch_status, commit_log, mailbox
from paceline.training.drivers.local.doorbell import fence
from paceline.training.drivers.local.event_log import EventLog
from paceline.training.drivers.local.fields import LINE, SLOT_WORDS, ControlField, GroupField, PayloadField, SlotField
from paceline.training.drivers.local.shared_memory import STALENESS_BINS, SharedMemory
from paceline.training.drivers.local.span_log import UPDATE, SpanLog
from paceline.training.drivers.local.writer_lock import WriterLock


class SharedStore:
    def __init__(
        self, memory: SharedMemory, updater: Updater, spans: SpanLog, on_wait: Callable[[], None] | None = None
    ) -> None:
        self.memory, self.updater, self.spans = memory, updater, spans
        self.lock = WriterLock(memory, on_wait)
        self.log = EventLog(memory) if memory.sizes.events else None
        self.headers = [memoryview(header) for header in memory.headers]
        self.payload: Tensor | None = None
        """The payload of a worker that commits alone: no other process reads it, so it need not be shared."""
        self.local: Tensor | None = None
        """The parameters of the worker that commits: what its payload was computed on, and what it computes on next."""
        self.held = -1
        """The version that these are; -1: they are none, since the worker has changed them."""
        self._prepared: Tensor | None = None
        """What the correction needs no parameters for, of the payload that is about to be committed."""

    @property
    def version(self) -> int:
        return self.memory.control[ControlField.VERSION]

    # Reading

    def read(self, into: Tensor) -> int:
        """Copies the newest version; its number."""
        control = self.memory.control
        while True:
            version = control[ControlField.VERSION]
            into.copy_(self.memory.parameters[version % 2])
            if control[ControlField.WRITING] <= version + 1:  # else the one after the next takes its place: once more
                return version

    def read_for_round(self, into: Tensor, group: int, number: int) -> int:
        """Copies the version that the first member of a group found for its round, whatever others do meanwhile."""
        memory = self.memory
        words = memory.groups[group * LINE : (group + 1) * LINE]
        if not memory.snapshots:
            return self.read(into)  # one group: the version stays until the round is committed
        if words[GroupField.SNAPSHOT_ROUND] != number + 1:
            with self.lock:
                if words[GroupField.SNAPSHOT_ROUND] != number + 1:
                    words[GroupField.SNAPSHOT_ROUND] = 0
                    words[GroupField.SNAPSHOT_VERSION] = self.read(memory.snapshots[group])
                    words[GroupField.SNAPSHOT_ROUND] = number + 1
        into.copy_(memory.snapshots[group])
        return words[GroupField.SNAPSHOT_VERSION]

    # Committing

    def commit(self, order: Apply, into: Tensor | None = None) -> None:
        """Makes version `order.update` of everything, then publishes it.

        With `into`, the new parameters are computed there and copied: a worker computes on them next.
        """
        start_ns = time.monotonic_ns()
        memory, version = self.memory, order.update
        control = memory.control
        with self.lock:
            assert version == control[ControlField.VERSION] + 1, (
                f"update {version} after {control[ControlField.VERSION]}"
            )
            control[ControlField.WRITING] = version
            fence()  # a reader that finds anything of it finds this word, too
            old, new = (version - 1) % 2, version % 2
            header = self.headers[new]
            header[:] = self.headers[old]
            given = [self._given(contribution, header) for contribution in order.contributions]
            source, target = memory.parameters[old], memory.parameters[new] if into is None else into
            if into is not None and self.held == version - 1:
                source = into
            self.updater.apply(order, given, source, target, memory.states[old], memory.states[new])
            if into is not None:
                memory.parameters[new].copy_(into)
            bins = 2 * memory.sizes.groups
            for contribution in order.contributions:
                header[contribution.group] += 1
                header[bins + min(contribution.staleness, STALENESS_BINS - 1)] += 1
                for task in contribution.tasks:
                    batch_status.mark(memory, task.epoch, task.batches, batch_status.APPLIED, version)
            if self.log is not None:
                header[-1] = self.log.update(order, header[-1])
            control[ControlField.VERSION] = version
            if into is not None:
                self.held = version
            now_ns = time.monotonic_ns()
            control[ControlField.UPDATE_NS] += now_ns - start_ns
        self.spans.add(UPDATE, start_ns, now_ns)

    def _given(self, contribution: Contribution, header: memoryview) -> GroupContribution:
        memory, payloads = self.memory, []
        for task in contribution.tasks:
            place = memory.place(task.sequence)
            line = task.worker * SLOT_WORDS + SlotField.PAYLOAD + place * LINE
            values = memory.payloads[task.worker][place] if self.payload is None else self.payload
            payload = Payload(values, memory.slots[line + PayloadField.SAMPLES], len(task.batches))
            averaged = memory.slots[line + PayloadField.AVERAGED]
            if averaged > 0:  # the members have averaged them already
                payloads = [payload]
                break
            if not averaged:
                payloads.append(payload)
        fetched = self._fetched(contribution) if self.updater.needs_fetched else None
        if not memory.corrections:
            return GroupContribution(payloads, fetched, {}, {})
        groups, group = memory.sizes.groups, contribution.group
        current = self.headers[self.version % 2][groups + group]
        kept = memory.corrections[group]
        if header[groups + group] != current:  # the group is named twice in this update
            return GroupContribution(payloads, fetched, kept[1 - current], kept[1 - current])
        header[groups + group] = 1 - current
        return GroupContribution(payloads, fetched, kept[current], kept[1 - current], self._prepared)

    def _fetched(self, contribution: Contribution) -> Tensor | None:
        """What the payloads were computed on; None: the version that is replaced."""
        if self.memory.fetched:
            first = contribution.tasks[0]
            fetched: Tensor = self.memory.fetched[first.worker][self.memory.place(first.sequence)]
            return fetched
        return self.memory.snapshots[contribution.group] if self.memory.snapshots else self.local

    def close_batches(self, task: Compute, refused: bool) -> None:
        """Batches of a task are done with, without an update."""
        with self.lock:
            kind = batch_status.REFUSED if refused else batch_status.DROPPED
            batch_status.mark(self.memory, task.epoch, task.batches, kind, self.version)

    # What a worker does by itself

    def commit_own(self, task: Compute, group: int, pulled: int) -> None:
        """An update of one payload."""
        memory = self.memory
        if memory.corrections and self.payload is not None:  # only this worker's updates change its group's state
            current, kept = self.headers[self.version % 2][memory.sizes.groups + group], memory.corrections[group]
            self._prepared = self.updater.prepare(self.payload, kept[current], kept[1 - current])
        with self.lock:
            self._commit_tasks((task,), group, pulled)

    def push_to_round(self, task: Compute, group: int, members: Sequence[int]) -> bool:
        """A payload of the group's round under way; whether the round was committed with it."""
        with self.lock:
            self.memory.slots[task.worker * SLOT_WORDS + SlotField.PUSHED] = task.sequence
            return self.commit_round(group, members)

    def commit_round(self, group: int, members: Sequence[int]) -> bool:
        """Commits the round under way if all its payloads are in; whether it did."""
        memory = self.memory
        words = memory.groups[group * LINE : (group + 1) * LINE]
        with self.lock:
            number = words[GroupField.ROUND]
            tasks = [task for worker in members if (task := self._pushed(worker)) is not None and task.round == number]
            if not tasks or len(tasks) < tasks[0].parts:
                return False
            good: list[Compute] = []
            refused: list[Compute] = []
            for task in sorted(tasks, key=lambda task: task.batches):
                (good if self._line(task, PayloadField.FINITE) else refused).append(task)
            words[GroupField.COMMITTING_ROUND] = number + 1
            words[GroupField.COMMITTING_EVENT] = memory.control[ControlField.EVENTS] + len(refused) + bool(good)
            memory.control[ControlField.COMMITTING_GROUP] = group + 1
            for prepared, task in enumerate(refused):
                self._refuse(task, self.version + bool(good), prepared)
            if good:
                pulled = min(self._line(task, PayloadField.PULLED) for task in good)
                self._commit_tasks(tuple(good), group, pulled, len(refused))
            else:
                commit_log.publish(memory)
            words[GroupField.ROUND] = number + 1
            memory.control[ControlField.COMMITTING_GROUP] = 0
            return True

    def _pushed(self, worker: int) -> Compute | None:
        """The task whose payload a worker has pushed to its group's round."""
        sequence = self.memory.slots[worker * SLOT_WORDS + SlotField.PUSHED]
        found = mailbox.get(self.memory, worker, sequence) if sequence else None
        return found[1] if found is not None else None

    def refuse_own(self, task: Compute) -> None:
        """A payload that is not finite is closed; the server hears of it."""
        with self.lock:
            self._refuse(task, self.version)
            commit_log.publish(self.memory)

    def _refuse(self, task: Compute, version: int, prepared: int = 0) -> None:
        """Closes the batches of a payload that is not finite, as of a version, and prepares the row that says so."""
        self._log_task(task)
        if version > self.version:
            self.memory.control[ControlField.WRITING] = version  # if it is never made, neither is this
        batch_status.mark(self.memory, task.epoch, task.batches, batch_status.REFUSED, version)
        commit_log.prepare(self.memory, commit_log.REFUSED, task, 0, len(task.batches), version, prepared)

    def _log_task(self, task: Compute) -> None:
        if self.log is not None:
            header = self.headers[self.version % 2]
            incarnation = self.memory.slots[task.worker * SLOT_WORDS + SlotField.JOINED]
            header[-1] = self.log.task(task, incarnation, header[-1])

    def withdraw(self, worker: int) -> None:
        """A dead worker's payload is no longer part of its group's round."""
        with self.lock:
            self.memory.slots[worker * SLOT_WORDS + SlotField.PUSHED] = 0

    def _commit_tasks(self, tasks: tuple[Compute, ...], group: int, pulled: int, prepared: int = 0) -> None:
        """One update of these payloads, and its row in the commit log, after so many that are prepared already."""
        memory, version, last = self.memory, self.version, tasks[-1]
        closed = commit_log.closed_batches(memory, last.epoch, prepared)
        batches = sum(len(task.batches) for task in tasks)
        for task in tasks:
            self._log_task(task)
        commit_log.prepare(memory, commit_log.COMMITTED, last, pulled, batches, version + 1, prepared)
        order = Apply(version + 1, (Contribution(group, tasks, version - pulled),), last.epoch, closed)
        self.commit(order, self.local)
        commit_log.publish(memory)
        if closed + batches == memory.sizes.batches:
            self.keep_epoch(last.epoch)

    def keep_epoch(self, epoch: int) -> bool:
        """Copies the newest parameters as those of a finished epoch; False: it is not the turn of this epoch yet.

        One before it may take longer, or the launcher must take others first.
        """
        control = self.memory.control
        if control[ControlField.EPOCH_KEPT] > epoch:
            return True
        if control[ControlField.EPOCH_KEPT] < epoch or control[ControlField.EPOCHS_TAKEN] < epoch - 1:
            return False
        with self.lock:
            self.memory.epoch_parameters[epoch % 2].copy_(self.memory.parameters[self.version % 2])
            control[ControlField.EPOCH_VERSION + epoch % 2] = self.version
            control[ControlField.EPOCH_KEPT] = epoch + 1
        return True

    def _line(self, task: Compute, field: int) -> int:
        line = task.worker * SLOT_WORDS + SlotField.PAYLOAD + self.memory.place(task.sequence) * LINE
        return self.memory.slots[line + field]
