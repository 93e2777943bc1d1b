"""What a worker commits by itself: an update of its own payload, or of its group's round when its payload completes it.

The server hears of it from the commit log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter

import torch
from torch import Tensor

from paceline.strategy.instructions import Apply, Compute, Contribution
from paceline.strategy.updater import Updater
from paceline.training.drivers.local import batch_status, commit_log, mailbox
from paceline.training.drivers.local.fields import SLOT_WORDS, HeaderField, PayloadField, SlotField
from paceline.training.drivers.local.shared_memory import UPDATE_WORDS, SharedMemory
from paceline.training.drivers.local.store import SharedStore


class WorkerStore(SharedStore):
    def __init__(
        self, memory: SharedMemory, who: int, updater: Updater, on_wait: Callable[[], None] | None = None,
        parameters: Tensor | None = None,
    ) -> None:  # fmt: skip
        super().__init__(memory, who, updater, on_wait, parameters)
        own = torch.empty(max(memory.sizes.payload, memory.sizes.numbers), dtype=memory.parameters[0].dtype)
        self.payload, self.gradient = own[: memory.sizes.payload], own[: memory.sizes.numbers]
        """This worker's payload, and the gradient of an update, which replaces it; others get copies of them."""
        self._payload_bytes, self._gradient_bytes = _bytes_of(self.payload), _bytes_of(self.gradient)
        self._place_bytes = [_bytes_of(place) for place in memory.places]

    def _claim(self, sequence: int) -> None:
        """Makes the next place of the ring free for a task, once its last update is in a snapshot."""
        memory, place = self.memory, self.memory.place_of(self.who, sequence)
        made = memory.place_versions[place]
        if made and made > memory.snapshot[1]:
            with self.lock:
                self._take_snapshot()
        memory.place_versions[place] = 0  # whoever is still reading it finds that out

    def _put(self, sequence: int, source: memoryview) -> int:
        """Copies a vector to the place of a task, and returns the place.

        Other cores have it in their caches. The C library overwrites it in a fifth of the time that PyTorch takes,
        because it does not read it first. As after any other write, a word written later is not seen before it.
        """
        place = self.memory.place_of(self.who, sequence)
        self._place_bytes[place][: len(source)] = source
        return place

    def _take_snapshot(self) -> None:
        """Writes a snapshot for readers that are behind; for the holder of the lock."""
        memory, replica = self.memory, self.replica
        assert replica is not None
        version = replica.catch_up()
        new = self.begin_snapshot(version, self.begin()) % 2
        memory.parameters[new].copy_(replica.parameters)
        for name, tensor in replica.state.items():
            memory.states[new][name].copy_(tensor)
        self.publish()

    def commit_own(self, task: Compute, group: int, pulled: int) -> None:
        """Commits an update of one payload."""
        memory = self.memory
        self._claim(task.sequence)
        if memory.corrections:  # only this worker's updates change its group's state
            current, kept = memory.word(memory.sizes.correction_word + group), memory.corrections[group]
            self.prepared = self.updater.prepare(self.payload, kept[current], kept[1 - current])
            self.newest()  # brought up to date here, so that others need not wait for that
        with self.lock:
            self._commit((task,), group, pulled, self.begin(), task.sequence)
        self._apply_own()

    def refuse_own(self, task: Compute) -> None:
        """Closes a payload that is not finite, and reports it to the server."""
        with self.lock:
            self._refuse(task, self.begin())
            self.publish()

    def push_to_round(self, task: Compute, group: int, members: Sequence[int]) -> bool:
        """Adds a payload to the current round of the group; returns whether that committed the round."""
        self._claim(task.sequence)
        with self.lock:
            committed = self.commit_round(group, members, task)
            if not committed:
                self._put(task.sequence, self._payload_bytes)
                self.memory.slots[task.worker * SLOT_WORDS + SlotField.PUSHED] = task.sequence
        if committed:
            self._apply_own()
        return committed

    def commit_round(self, group: int, members: Sequence[int], mine: Compute | None = None) -> bool:
        """Commits the current round if all its payloads are in; returns whether it did.

        `mine` is a task of this worker whose payload nobody else has seen.
        """
        with self.lock:
            number = self.memory.header[HeaderField.ROUNDS + group]
            found = (mine if mine and worker == self.who else self._pushed(worker) for worker in members)
            tasks = [task for task in found if task is not None and task.round == number]
            own = next((task.sequence for task in tasks if task.worker == self.who), None)
            if own is None or len(tasks) < tasks[0].parts:
                return False
            tasks.sort(key=attrgetter("batches"))
            header = self.begin()
            good: list[Compute] = []
            for task in tasks:
                if self._word(task, PayloadField.FINITE):
                    good.append(task)
                else:
                    self._refuse(task, header)
            if good:
                pulled = min(self._word(task, PayloadField.PULLED) for task in good)
                self._commit(tuple(good), group, pulled, header, own)
            else:
                header[HeaderField.ROUNDS + group] += 1
                self._made = -1
                self.publish()
            return True

    def _pushed(self, worker: int) -> Compute | None:
        """The task whose payload a worker has pushed to its group's round."""
        sequence = self.memory.slots[worker * SLOT_WORDS + SlotField.PUSHED]
        found = mailbox.get(self.memory, worker, sequence) if sequence else None
        return found[1] if found is not None else None

    def _refuse(self, task: Compute, header: memoryview) -> None:
        """Closes the batches of a payload that is not finite."""
        self._log_task(task, header)
        self.close(task, batch_status.REFUSED)
        commit_log.add(self.memory, header, commit_log.REFUSED, task)

    def _commit(self, tasks: tuple[Compute, ...], group: int, pulled: int, header: memoryview, own: int) -> None:
        """Makes and publishes one update of these payloads; `own` is this worker's task."""
        version, last = header[HeaderField.VERSION], tasks[-1]
        self._own, self._made = own, version + 1
        closed = batch_status.closed_count(header, last.epoch)
        if self.log is not None:
            for task in tasks:
                self._log_task(task, header)
        contributions = (Contribution(group, tasks, version - pulled),)
        self.update(self.updater.turns.order(version + 1, contributions, last.epoch, closed), header)
        commit_log.add(self.memory, header, commit_log.COMMITTED, last, pulled)
        self.publish()
        if closed + sum(len(task.batches) for task in tasks) == self.memory.sizes.batches:
            self.keep_epoch(last.epoch)

    def make(self, order: Apply, header: memoryview) -> None:
        """Writes the gradient of an update into the buffer of this worker's payload; all processes apply it."""
        memory, tasks = self.memory, order.contributions[0].tasks
        assert self.replica is not None
        if self.updater.correction is not None:
            self.replica.catch_up()
        memory.slots[self.who * SLOT_WORDS + SlotField.PUSHED] = 0  # if it dies now, its payload is lost
        if not (self.updater.takes_payloads and len(tasks) == 1 and tasks[0].worker == self.who):
            given = [self._given(contribution, header) for contribution in order.contributions]
            self.updater.gradient_of(order, given, self.replica.parameters, self.gradient)
        place = self._put(self._own, self._gradient_bytes)
        row = order.update % memory.update_rows * UPDATE_WORDS
        memory.updates[row], memory.updates[row + 1], memory.updates[row + 2] = place, order.epoch, order.closed
        memory.updates[row + 3] = order.turn
        memory.place_versions[place] = order.update

    def _apply_own(self) -> None:
        """Applies the update just committed to this worker's replica, while the gradient is in the core's cache."""
        assert self.replica is not None
        self.replica.catch_up(self._made, self.gradient)

    def _payload_of(self, task: Compute) -> Tensor:
        return self.payload if task.worker == self.who else super()._payload_of(task)

    def _log_task(self, task: Compute, header: memoryview) -> None:
        if self.log is not None:
            self.log.task(task, self.memory.slots[task.worker * SLOT_WORDS + SlotField.JOINED], header)

    def _word(self, task: Compute, field: int) -> int:
        """A word about a task's payload."""
        return self.memory.slots[self.memory.payload_line(task.worker, task.sequence) + field]


def _bytes_of(vector: Tensor) -> memoryview:
    return memoryview(vector.numpy()).cast("B")  # type: ignore[arg-type]
