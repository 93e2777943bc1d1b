"""An update that a death cannot tear apart: written beside the version there is, then published by one word."""

from __future__ import annotations

import time
from typing import Any

import numpy.typing as npt

from paceline.strategy.coordinator import Coordinator
from paceline.strategy.instructions import Apply, Compute, Contribution
from paceline.strategy.server import Given, Payload, Server, State
from paceline.train.local import marks
from paceline.train.local.doorbell import Doorbell
from paceline.train.local.event_log import EventLog
from paceline.train.local.memory import STALENESS_BINS, Memory
from paceline.train.local.pulling import begin_writing
from paceline.train.local.span_log import UPDATE, SpanLog
from paceline.train.local.words import LINE, SLOT_WORDS, Control, Of
from paceline.train.local.words import Payload as PayloadWord


class Updating:
    def __init__(
        self,
        memory: Memory,
        server: Server,
        tasks: dict[tuple[int, int], Compute],
        bells: list[Doorbell],
        log: EventLog | None,
    ) -> None:
        self.memory, self.server, self.tasks, self.bells, self.log = memory, server, tasks, bells, log
        self.spans = SpanLog(memory, memory.sizes.workers)

    def make(self, order: Apply, coordinator: Coordinator) -> None:
        """Version `order.update` of parameters, optimizer and correction state, marks and counts; then the word."""
        start_ns = time.monotonic_ns()
        memory, version = self.memory, order.update
        old, new = (version - 1) % 2, version % 2
        begin_writing(memory, version)
        header = memory.headers[new]
        header[:] = memory.headers[old]
        given = [self._given(contribution, header) for contribution in order.contributions]
        self.server.apply(
            order, given, memory.parameters[old], memory.parameters[new], memory.states[old], memory.states[new]
        )
        groups = memory.sizes.groups
        for contribution in order.contributions:
            group = coordinator.groups[contribution.group]
            header[contribution.group] = max(header[contribution.group] + 1, group.clock - group.applying + 1)
            header[2 * groups + min(contribution.staleness, STALENESS_BINS - 1)] += 1
            for key in contribution.payloads:
                task = self.tasks[key]
                marks.mark(memory, task.epoch, task.batches, marks.APPLIED, version)
        if self.log is not None:
            self.log.update(order, header)
        memory.control[Control.VERSION] = version
        memory.control[Control.REFUSED_IN_A_ROW] = 0
        self._acknowledge(order)
        now_ns = time.monotonic_ns()
        memory.control[Control.SERVER_NS] += now_ns - start_ns
        self.spans.add(UPDATE, start_ns, now_ns)

    def _given(self, contribution: Contribution, header: npt.NDArray[Any]) -> Given:
        memory, number = self.memory, contribution.group
        payloads = []
        for worker, sequence in contribution.payloads:
            place = sequence % 2
            samples = memory.slots[worker * SLOT_WORDS + Of.PAYLOAD + place * LINE + PayloadWord.SAMPLES]
            steps = len(self.tasks[worker, sequence].batches)
            payloads.append(Payload(memory.payloads[worker][place], samples, steps))
        backup = None
        if memory.pulled:
            worker, sequence = contribution.payloads[0]
            backup = memory.pulled[worker][sequence % 2]
        elif memory.snapshots and self.server.needs_backup:
            backup = memory.snapshots[number]
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
        if header[groups + group] != current:
            return kept[1 - current], kept[1 - current]
        header[groups + group] = 1 - current
        return kept[current], kept[1 - current]

    def _acknowledge(self, order: Apply) -> None:
        slots = self.memory.slots
        for contribution in order.contributions:
            for worker, sequence in contribution.payloads:
                del self.tasks[worker, sequence]
                slots[worker * SLOT_WORDS + Of.ACKNOWLEDGED + sequence % 2] = sequence
                self.bells[worker].ring()

    def take_snapshot(self, group: int, version: int) -> None:
        """What the members of a group start their round from, whatever others do meanwhile."""
        memory = self.memory
        if memory.snapshot_versions[group] != version + 1:
            memory.snapshot_versions[group] = 0
            memory.snapshots[group].copy_(memory.parameters[version % 2])
            memory.snapshot_versions[group] = version + 1
