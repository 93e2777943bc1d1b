"""What happened, in shared memory while it happens, and then as a file from which the run can be computed again.

Its end is kept with each version, so a death neither loses nor repeats an update.
"""

from __future__ import annotations

from paceline.errors import PacelineError
from paceline.strategy.event_record import ContributionRecord, EventRecord, TaskRecord, UpdateRecord
from paceline.strategy.instructions import Apply, Compute
from paceline.strategy.strategy import Strategy
from paceline.training.drivers.local.fields import LINE, SLOT_WORDS, ControlField, PayloadField, SlotField
from paceline.training.drivers.local.shared_memory import SharedMemory
from paceline.workload import Workload

_TASK, _UPDATE = 1, 2


class EventLog:
    """For the holder of the writer lock. Words: what it is, how many follow, and then these."""

    def __init__(self, memory: SharedMemory) -> None:
        self.memory = memory

    def task(self, task: Compute, incarnation: int, end: int) -> int:
        """A task is done, whatever becomes of its payload; the new end."""
        place = self.memory.place(task.sequence)
        line = task.worker * SLOT_WORDS + SlotField.PAYLOAD + place * LINE
        fetches = self.memory.slots[line + PayloadField.FETCHES]
        versions = self.memory.fetched_versions[task.worker, place, :fetches].tolist()
        return self._add(
            end, _TASK, task.worker, task.sequence, incarnation, task.epoch, len(task.batches), len(task.fetches),
            *task.batches, *task.fetches, *versions,
        )  # fmt: skip

    def update(self, order: Apply, end: int) -> int:
        words: list[int] = [order.update, order.epoch, order.closed]
        for group, tasks, staleness in order.contributions:
            words += (group, staleness, len(tasks), *(number for task in tasks for number in task[:2]))
        return self._add(end, _UPDATE, *words)

    def _add(self, end: int, kind: int, *words: int) -> int:
        last = end + 2 + len(words)
        if last > len(self.memory.events):
            raise PacelineError("more happened than there is room to record: train without --record-events")
        self.memory.events[end:last] = (kind, len(words), *words)
        return last


def events_of(memory: SharedMemory, workload: Workload, strategy: Strategy) -> EventRecord:
    """The launcher's side."""
    words = memory.events[: int(memory.headers[memory.control[ControlField.VERSION] % 2, -1])].tolist()
    tasks: dict[tuple[int, int], TaskRecord] = {}
    updates, start = [], 0
    while start < len(words):
        kind, count = words[start : start + 2]
        found = words[start + 2 : start + 2 + count]
        start += 2 + count
        if kind == _TASK:
            task = _task(found)
            tasks[task.worker, task.sequence] = task  # a server's successor notes some once more
        else:
            updates.append(_update(found))
    return EventRecord(workload, strategy, memory.sizes.workers, tuple(tasks.values()), tuple(updates))


def _task(words: list[int]) -> TaskRecord:
    worker, sequence, incarnation, epoch, batches, fetches = words[:6]
    rest = words[6:]
    parts = rest[:batches], rest[batches : batches + fetches], rest[batches + fetches :]
    return TaskRecord(worker, sequence, incarnation, epoch, *(tuple(part) for part in parts))


def _update(words: list[int]) -> UpdateRecord:
    update, epoch, closed = words[:3]
    contributions, start = [], 3
    while start < len(words):
        group, staleness, count = words[start : start + 3]
        numbers = words[start + 3 : start + 3 + 2 * count]
        payloads = tuple(zip(numbers[::2], numbers[1::2], strict=True))
        contributions.append(ContributionRecord(group, payloads, staleness))
        start += 3 + 2 * count
    return UpdateRecord(update, epoch, closed, tuple(contributions))
