"""Records events in shared memory during a run, and then in a file from which the run can be replayed.

The end of the log is stored with each version, so a process that dies neither loses nor repeats an update.
"""

from __future__ import annotations

import io
import marshal
from typing import Any

from paceline.errors import PacelineError
from paceline.strategy.event_record import ContributionRecord, EventRecord, TaskRecord, UpdateRecord
from paceline.strategy.instructions import Apply, Compute
from paceline.strategy.strategy import Strategy
from paceline.training.drivers.local.fields import HeaderField, PayloadField
from paceline.training.drivers.local.shared_memory import SharedMemory
from paceline.workload import Workload


class EventLog:
    """Appends the events of tasks and updates; for the holder of the writer lock."""

    def __init__(self, memory: SharedMemory) -> None:
        self.memory, self.room = memory, memory.events.cast("B")

    def task(self, task: Compute, incarnation: int, header: memoryview) -> None:
        """Records that a task was computed, whether or not its payload is applied."""
        place = self.memory.place(task.sequence)
        fetches = self.memory.slots[self.memory.payload_line(task.worker, task.sequence) + PayloadField.FETCHES]
        versions = tuple(self.memory.fetched_versions[task.worker, place, :fetches].tolist())
        self._add(header, tuple(vars(TaskRecord.of(task, incarnation, versions)).values()))

    def update(self, order: Apply, header: memoryview) -> None:
        found = UpdateRecord.of(order)
        contributions = tuple(tuple(vars(one).values()) for one in found.contributions)
        self._add(header, (found.update, found.epoch, found.closed, contributions))

    def _add(self, header: memoryview, entry: tuple[Any, ...]) -> None:
        data, end = marshal.dumps(entry), header[HeaderField.RECORDED]
        if end + len(data) > len(self.room):
            raise PacelineError("too many events to record: train without `record_events`")
        self.room[end : end + len(data)] = data
        header[HeaderField.RECORDED] = end + len(data)


def events_of(memory: SharedMemory, workload: Workload, strategy: Strategy) -> EventRecord:
    """The launcher's side."""
    end = memory.word(HeaderField.RECORDED)
    log = io.BytesIO(memory.events.cast("B")[:end])
    tasks: dict[tuple[int, int], TaskRecord] = {}
    updates = []
    while log.tell() < end:
        entry = marshal.load(log)
        if len(entry) == 4:
            update, epoch, closed, contributions = entry
            made = tuple(ContributionRecord(*one) for one in contributions)
            updates.append(UpdateRecord(update, epoch, closed, made))
        else:
            tasks[entry[:2]] = TaskRecord(*entry)  # a server's successor logs some once more
    return EventRecord(workload, strategy, memory.sizes.workers, tuple(tasks.values()), tuple(updates))
