"""The parameters in shared memory: read one version, commit an update, keep an epoch's parameters.

There are two of everything that an update changes: snapshots of the parameters and the optimizer's state, and headers
with all that is counted. What is new is written beside what there is; one word publishes all of it. So an update is
whole or not there, whoever dies when. Each update of the server's is a snapshot; workers publish their updates as
gradients, see `replica.py`, and a snapshot after some of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from torch import Tensor

from paceline.strategy.gradient_mean import GroupContribution, Payload
from paceline.strategy.instructions import Apply, Compute, Contribution
from paceline.strategy.updater import Updater
from paceline.training.drivers.local import batch_status
from paceline.training.drivers.local.doorbell import fence
from paceline.training.drivers.local.event_log import EventLog
from paceline.training.drivers.local.fields import (
    LINE,
    SLOT_WORDS,
    ControlField,
    GroupField,
    HeaderField,
    PayloadField,
    SlotField,
)
from paceline.training.drivers.local.replica import ParameterReplica, copy_snapshot
from paceline.training.drivers.local.shared_memory import STALENESS_BINS, SharedMemory
from paceline.training.drivers.local.span_log import UPDATE, SpanLog
from paceline.training.drivers.local.writer_lock import WriterLock


class SharedStore:
    def __init__(
        self, memory: SharedMemory, who: int, updater: Updater, on_wait: Callable[[], None] | None = None,
        parameters: Tensor | None = None,
    ) -> None:  # fmt: skip
        """`who` is a worker, or their number for the server; `parameters` is memory that only `read` changes."""
        self.memory, self.who, self.updater, self.spans = memory, who, updater, SpanLog(memory, who)
        self.lock = WriterLock(memory, on_wait)
        self.log = EventLog(memory) if memory.sizes.events else None
        self.replica = ParameterReplica(memory, updater, parameters) if memory.sizes.workers_commit else None
        self.fetched: Tensor | None = None
        """What a worker that commits has computed its payload on."""
        self.prepared: Tensor | None = None
        """What the correction needs no parameters for, of that payload."""

    # Reading

    def read(self, into: Tensor) -> int:
        """Copies the newest parameters; returns their version."""
        if self.replica is None:
            return copy_snapshot(self.memory, into)
        version = self.replica.catch_up()
        if into is not self.replica.parameters:
            into.copy_(self.replica.parameters)
        return version

    def newest(self) -> tuple[Tensor, dict[str, Tensor]]:
        """The newest parameters and the optimizer's state, for the holder of the lock."""
        if self.replica is None:
            now = self.memory.snapshot[0] % 2
            return self.memory.parameters[now], self.memory.states[now]
        self.replica.catch_up()
        return self.replica.parameters, self.replica.state

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

    # Publishing

    def begin(self) -> memoryview:
        """Begins a publication, as the holder of the lock; returns its header."""
        control, headers = self.memory.control, self.memory.headers
        assert control[ControlField.WRITING] == control[ControlField.PUBLISHED], "one publication at a time"
        number = control[ControlField.WRITING] = control[ControlField.PUBLISHED] + 1
        fence()  # a reader that finds anything of what follows finds this word, too
        header = headers[number % 2]
        header[:] = headers[1 - number % 2]
        return header

    def publish(self) -> None:
        """Publishes everything written since `begin`."""
        self.memory.control[ControlField.PUBLISHED] = self.memory.control[ControlField.WRITING]

    def close(self, task: Compute, kind: int) -> None:
        """Closes the batches of a task as part of this publication."""
        batch_status.mark(self.memory, task.epoch, task.batches, kind, self.memory.control[ControlField.WRITING])

    # What the server does

    def commit(self, order: Apply) -> None:
        """Writes version `order.update` of everything and publishes it."""
        with self.lock:
            self.update(order, self.begin())
            self.publish()

    def close_batches(self, task: Compute, refused: bool) -> None:
        """Closes batches of a task without an update."""
        with self.lock:
            self.begin()
            self.close(task, batch_status.REFUSED if refused else batch_status.DROPPED)
            self.publish()

    # An update

    def update(self, order: Apply, header: memoryview) -> None:
        """Writes version `order.update` of everything."""
        start_ns = time.monotonic_ns()
        assert order.update == header[HeaderField.VERSION] + 1, f"update {order.update} is not the next"
        self.make(order, header)
        self._count(order, header)
        if self.log is not None:
            self.log.update(order, header)
        now_ns = time.monotonic_ns()
        self.memory.control[ControlField.UPDATE_NS] += now_ns - start_ns
        self.spans.add(UPDATE, start_ns, now_ns)

    def make(self, order: Apply, header: memoryview) -> None:
        """Writes an update of the server, which is a snapshot."""
        memory = self.memory
        given = [self._given(contribution, header) for contribution in order.contributions]
        count = self.begin_snapshot(order.update, header)
        old, new = (count - 1) % 2, count % 2
        source, target, states = memory.parameters[old], memory.parameters[new], memory.states
        self.updater.apply(order, given, source, target, states[old], states[new])

    def begin_snapshot(self, version: int, header: memoryview) -> int:
        """Announces that the next snapshot, of `version`, is being written; returns its number."""
        count = self.memory.control[ControlField.SNAPSHOT_WRITING] = header[HeaderField.SNAPSHOT] + 1
        header[HeaderField.SNAPSHOT], header[HeaderField.SNAPSHOT_VERSION] = count, version
        return count

    def _count(self, order: Apply, header: memoryview) -> None:
        """Counts an update, its rounds, their staleness and their batches."""
        memory, number = self.memory, self.memory.control[ControlField.WRITING]
        for contribution in order.contributions:
            header[HeaderField.ROUNDS + contribution.group] += 1
            header[memory.staleness_word + min(contribution.staleness, STALENESS_BINS - 1)] += 1
            for task in contribution.tasks:
                batch_status.mark(memory, task.epoch, task.batches, batch_status.APPLIED, number)
        header[HeaderField.VERSION] = order.update

    def _given(self, contribution: Contribution, header: memoryview) -> GroupContribution:
        memory, payloads = self.memory, []
        for task in contribution.tasks:
            line = memory.payload_line(task.worker, task.sequence)
            payload = Payload(self._payload_of(task), memory.slots[line + PayloadField.SAMPLES], len(task.batches))
            averaged = memory.slots[line + PayloadField.AVERAGED]
            if averaged > 0:  # the members have averaged them already
                payloads = [payload]
                break
            if not averaged:
                payloads.append(payload)
        fetched = self._fetched(contribution) if self.updater.needs_fetched else None
        if not memory.corrections:
            return GroupContribution(payloads, fetched, {}, {})
        word = memory.sizes.correction_word + contribution.group
        current, kept = memory.header[word], memory.corrections[contribution.group]
        if header[word] != current:  # the group is named twice in this update
            return GroupContribution(payloads, fetched, kept[1 - current], kept[1 - current])
        header[word] = 1 - current
        return GroupContribution(payloads, fetched, kept[current], kept[1 - current], self.prepared)

    def _payload_of(self, task: Compute) -> Tensor:
        return self.memory.payload(task.worker, task.sequence)

    def _fetched(self, contribution: Contribution) -> Tensor | None:
        """The parameters that the payloads were computed on; None if that is the current version."""
        if self.memory.fetched:
            first = contribution.tasks[0]
            fetched: Tensor = self.memory.fetched[first.worker][self.memory.place(first.sequence)]
            return fetched
        return self.memory.snapshots[contribution.group] if self.memory.snapshots else self.fetched

    def withdraw(self, worker: int) -> None:
        """Removes the payload of a dead worker from its group's round."""
        with self.lock:
            self.memory.slots[worker * SLOT_WORDS + SlotField.PUSHED] = 0

    # The end of an epoch

    def keep_epoch(self, epoch: int) -> bool:
        """Copies the newest parameters as those of a finished epoch; False: it is not the turn of this epoch yet.

        One before it may take longer, or the launcher must take others first.
        """
        memory, control = self.memory, self.memory.control
        if control[ControlField.EPOCH_KEPT] > epoch:
            return True
        if control[ControlField.EPOCH_KEPT] < epoch or control[ControlField.EPOCHS_TAKEN] < epoch - 1:
            return False
        with self.lock:
            control[ControlField.EPOCH_VERSION + epoch % 2] = self.read(memory.epoch_parameters[epoch % 2])
            control[ControlField.EPOCH_KEPT] = epoch + 1
        return True
