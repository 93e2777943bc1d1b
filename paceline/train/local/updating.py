"""An update that a death cannot tear apart: written beside the version there is, then published by one word."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy.typing as npt
from torch import Tensor

from paceline.strategy.group import Group
from paceline.strategy.instructions import Apply, Compute, Contribution
from paceline.strategy.server import Given, Payload, Server, State
from paceline.train.local import drafts, marks
from paceline.train.local.event_log import EventLog
from paceline.train.local.memory import STALENESS_BINS, Memory
from paceline.train.local.pulling import begin_writing
from paceline.train.local.span_log import UPDATE, SpanLog
from paceline.train.local.sums import with_numbers
from paceline.train.local.words import LINE, SLOT_WORDS, Control, Of
from paceline.train.local.words import Payload as PayloadWord

if TYPE_CHECKING:
    from paceline.train.local.shards import Shards

Tasks = Mapping[tuple[int, int], Compute]


class Updating:
    def __init__(
        self,
        memory: Memory,
        server: Server,
        log: EventLog | None,
        spans: SpanLog,
        who: int,
        shards: Shards | None = None,
    ) -> None:
        """`who` makes updates: a worker, or the number of workers for the server, which others may help."""
        self.memory, self.server, self.log, self.spans, self.who = memory, server, log, spans, who
        self.shards = shards
        self.headers = [memoryview(header) for header in memory.headers]
        self.draft = memory.drafts[who] if memory.drafts else None

    def make(self, order: Apply, tasks: Tasks, groups: Mapping[int, Group] | None = None) -> None:
        """Version `order.update` of parameters, optimizer and correction state, marks and counts; then the word."""
        start_ns = time.monotonic_ns()
        memory, version = self.memory, order.update
        old, new = (version - 1) % 2, version % 2
        begin_writing(memory, version)
        header = memory.headers[new]
        header[:] = memory.headers[old]
        given = [self._given(contribution, tasks, header) for contribution in order.contributions]
        target, state = memory.parameters[new], memory.states[new]
        if self.draft is not None:
            target, state = self.draft.parameters, self.draft.state
        if self.shards is not None:
            self.shards.begin(order, given)
        self.server.apply(order, given, memory.parameters[old], target, memory.states[old], state)
        bins = 2 * memory.sizes.groups
        for contribution in order.contributions:
            number = contribution.group
            clock = header[number] + 1
            if groups is not None:
                clock = max(clock, groups[number].clock - groups[number].applying + 1)
            header[number] = clock
            header[bins + min(contribution.staleness, STALENESS_BINS - 1)] += 1
            for key in contribution.payloads:
                task = tasks[key]
                marks.mark(memory, task.epoch, task.batches, marks.APPLIED, version)
        if self.log is not None:
            self.log.update(order, header)
        if self.shards is not None:
            self.shards.wait()
        self._publish(version, start_ns)

    def make_simply(self, version: int, task: Compute, group: int, staleness: int, closed: int) -> None:
        """The same for the most frequent update, which is a single operation with a single payload."""
        start_ns = time.monotonic_ns()
        memory, new, draft = self.memory, version % 2, self.draft
        assert draft is not None
        memory.control[Control.WRITING] = version
        header = self.headers[new]
        header[:] = self.headers[1 - new]
        payload = memory.payloads[task.worker][task.sequence % 2]
        self.server.apply_simply(payload, task.epoch, closed, memory.parameters[0], draft.parameters)
        header[group] += 1
        header[2 * memory.sizes.groups + min(staleness, STALENESS_BINS - 1)] += 1
        marks.mark(memory, task.epoch, task.batches, marks.APPLIED, version)
        self._publish(version, start_ns)

    def _publish(self, version: int, start_ns: int) -> None:
        control = self.memory.control
        if self.draft is None:
            control[Control.VERSION] = version
        else:
            drafts.publish(self.memory, version, self.who)
        control[Control.REFUSED_IN_A_ROW] = 0
        now_ns = time.monotonic_ns()
        control[Control.SERVER_NS] += now_ns - start_ns
        self.spans.add(UPDATE, start_ns, now_ns)

    def _given(self, contribution: Contribution, tasks: Tasks, header: npt.NDArray[Any]) -> Given:
        memory, number = self.memory, contribution.group
        payloads = []
        for key in with_numbers(memory, contribution.payloads):
            worker, place = key[0], key[1] % 2
            samples = memory.slots[worker * SLOT_WORDS + Of.PAYLOAD + place * LINE + PayloadWord.SAMPLES]
            payloads.append(Payload(memory.payloads[worker][place], samples, len(tasks[key].batches)))
        backup = backup_of(memory, contribution) if self.server.needs_backup else None
        if not memory.corrections:
            return Given(payloads, backup, {}, {})
        return Given(payloads, backup, *self._kept(number, header))

    def _kept(self, group: int, header: npt.NDArray[Any]) -> tuple[State, State]:
        """The correction's state of a group before and after. In an update a group may be named twice."""
        memory = self.memory
        groups = memory.sizes.groups
        version = memory.control[Control.VERSION]
        current = int(memory.headers[version % 2, groups + group])
        kept = memory.corrections[group]
        if self.draft is not None:
            return kept[0], self.draft.kept
        if header[groups + group] != current:
            return kept[1 - current], kept[1 - current]
        header[groups + group] = 1 - current
        return kept[current], kept[1 - current]

    def take_snapshot(self, group: int, version: int) -> None:
        """What the members of a group start their round from, whatever others do meanwhile."""
        memory = self.memory
        if memory.snapshot_versions[group] != version + 1:
            memory.snapshot_versions[group] = 0
            memory.snapshots[group].copy_(memory.parameters[version % 2])
            memory.snapshot_versions[group] = version + 1


def backup_of(memory: Memory, contribution: Contribution) -> Tensor | None:
    """What a group's payloads were computed on, where that is kept."""
    if memory.pulled:
        worker, sequence = contribution.payloads[0]
        return memory.pulled[worker][sequence % 2]
    return memory.snapshots[contribution.group] if memory.snapshots else None
