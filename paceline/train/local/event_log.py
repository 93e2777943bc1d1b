"""What happened, in shared memory while it happens, and then as a file from which the run can be computed again.

Its end is kept with each version, so a server's death neither loses nor repeats an update.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy.typing as npt

from paceline.errors import PacelineError
from paceline.record import save
from paceline.strategy.event_record import EVENTS, EventRecord, GivenRecord, TaskRecord, UpdateRecord
from paceline.strategy.instructions import Apply, Compute
from paceline.strategy.strategy import Strategy
from paceline.train.local.memory import Memory
from paceline.train.local.words import LINE, SLOT_WORDS, Control, Of, Payload
from paceline.workload import Workload

_TASK, _UPDATE = 1, 2


class EventLog:
    """The side of who makes updates. Words: what it is, how many follow, and then these."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.go_on()

    def go_on(self) -> None:
        """After what others wrote, as of the newest version."""
        self.end = int(self._header[-1])

    def keep(self) -> None:
        """Also what is not part of an update yet."""
        self._header[-1] = self.end

    @property
    def _header(self) -> npt.NDArray[Any]:
        header: npt.NDArray[Any] = self.memory.headers[self.memory.control[Control.VERSION] % 2]
        return header

    def task(self, task: Compute, life: int) -> None:
        """A task is done, whatever becomes of its payload."""
        place = task.sequence % 2
        fetches = self.memory.slots[task.worker * SLOT_WORDS + Of.PAYLOAD + place * LINE + Payload.FETCHES]
        versions = self.memory.fetched[task.worker, place, :fetches].tolist()
        self._add(
            _TASK, task.worker, task.sequence, life, task.epoch, len(task.batches), len(task.fetches),
            *task.batches, *task.fetches, *versions,
        )  # fmt: skip

    def update(self, order: Apply, header: npt.NDArray[Any]) -> None:
        words: list[int] = [order.update, order.epoch, order.closed]
        for group, payloads, staleness in order.contributions:
            words += (group, staleness, len(payloads), *(number for payload in payloads for number in payload))
        self._add(_UPDATE, *words)
        header[-1] = self.end

    def _add(self, kind: int, *words: int) -> None:
        last = self.end + 2 + len(words)
        if last > len(self.memory.events):
            raise PacelineError("more happened than there is room to record: train without --record-events")
        self.memory.events[self.end : last] = (kind, len(words), *words)
        self.end = last


def events_of(memory: Memory, workload: Workload, strategy: Strategy) -> EventRecord:
    """The launcher's side."""
    words = memory.events[: int(memory.headers[memory.control[Control.VERSION] % 2, -1])].tolist()
    tasks: dict[tuple[int, int], TaskRecord] = {}
    updates, start = [], 0
    while start < len(words):
        kind, count = words[start : start + 2]
        found = words[start + 2 : start + 2 + count]
        start += 2 + count
        if kind == _TASK:
            task = _task(found)
            tasks[task.worker, task.sequence] = task  # a server's successor tells some once more
        else:
            updates.append(_update(found))
    return EventRecord(workload, strategy, memory.sizes.workers, tuple(tasks.values()), tuple(updates))


def _task(words: list[int]) -> TaskRecord:
    worker, sequence, life, epoch, batches, fetches = words[:6]
    rest = words[6:]
    parts = rest[:batches], rest[batches : batches + fetches], rest[batches + fetches :]
    return TaskRecord(worker, sequence, life, epoch, *(tuple(part) for part in parts))


def _update(words: list[int]) -> UpdateRecord:
    update, epoch, closed, *rest = words
    given = []
    while rest:
        group, staleness, count = rest[:3]
        numbers, rest = rest[3 : 3 + 2 * count], rest[3 + 2 * count :]
        given.append(GivenRecord(group, tuple(zip(numbers[::2], numbers[1::2], strict=True)), staleness))
    return UpdateRecord(update, epoch, closed, tuple(given))


def write_events(memory: Memory, workload: Workload, strategy: Strategy, directory: Path) -> None:
    save(events_of(memory, workload, strategy), directory / EVENTS)
