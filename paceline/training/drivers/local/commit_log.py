"""A log of what workers did by themselves, which the server reads: updates they made and payloads they refused.

A row is written under the writer lock. It also holds how many batches of each open epoch are closed by then, which is
where in the rate's schedule the next update stands.
"""

from __future__ import annotations

from typing import NamedTuple

from paceline.strategy.instructions import Compute
from paceline.training.drivers.local import batch_status
from paceline.training.drivers.local.fields import EVENT_WORDS, ControlField, EventField
from paceline.training.drivers.local.shared_memory import SharedMemory

COMMITTED, REFUSED = range(2)


class LogEvent(NamedTuple):
    kind: int
    worker: int
    sequence: int
    pulled: int


def closed_batches(memory: SharedMemory, epoch: int, prepared: int = 0) -> int:
    """How many batches of an epoch are closed as of the newest row, or as of so many that are prepared after it."""
    row, which = _row(memory, memory.control[ControlField.EVENTS] + prepared), epoch % 2
    known = memory.log[row + EventField.EPOCHS + which] == epoch + 1
    return memory.log[row + EventField.CLOSED + which] if known else 0


def prepare(
    memory: SharedMemory, kind: int, task: Compute, pulled: int, batches: int, version: int, prepared: int = 0
) -> None:
    """Writes a row, after so many that are prepared already; it counts from `publish` on.

    The task ends with so many batches closed, and `version` is the newest then.
    """
    words, number = memory.log, memory.control[ControlField.EVENTS] + prepared
    before, row = _row(memory, number), _row(memory, number + 1)
    words[row + EventField.KIND], words[row + EventField.WORKER] = kind, task.worker
    words[row + EventField.SEQUENCE], words[row + EventField.PULLED] = task.sequence, pulled
    words[row + EventField.VERSION] = version
    words[_row(memory, number + 1 - prepared) + EventField.COUNT] = prepared + 1
    which, other = task.epoch % 2, 1 - task.epoch % 2
    closed = closed_batches(memory, task.epoch, prepared) + batches
    words[row + EventField.EPOCHS + which], words[row + EventField.CLOSED + which] = task.epoch + 1, closed
    words[row + EventField.EPOCHS + other] = words[before + EventField.EPOCHS + other]
    words[row + EventField.CLOSED + other] = words[before + EventField.CLOSED + other]


def publish(memory: SharedMemory) -> None:
    """The rows that were prepared together count from now on."""
    number = memory.control[ControlField.EVENTS]
    memory.control[ControlField.EVENTS] = number + memory.log[_row(memory, number + 1) + EventField.COUNT]


def finish(memory: SharedMemory) -> None:
    """Publishes the rows of an update whose writer died after the update counted and before they did."""
    version, number = memory.control[ControlField.VERSION], memory.control[ControlField.EVENTS]
    following = _row(memory, number + 1)
    last = memory.log[_row(memory, number) + EventField.VERSION]
    if version and last != version and memory.log[following + EventField.VERSION] == version:
        publish(memory)


def read_event(memory: SharedMemory, number: int) -> LogEvent:
    row = _row(memory, number)
    return LogEvent(*memory.log[row : row + EventField.VERSION])


def recount(memory: SharedMemory) -> None:
    """When a server starts: sets the counts of the newest row from the status of every batch."""
    version, words = memory.control[ControlField.VERSION], memory.log
    row = _row(memory, memory.control[ControlField.EVENTS])
    for which in (0, 1):
        words[row + EventField.EPOCHS + which] = words[row + EventField.CLOSED + which] = 0
    for epoch in batch_status.begun(memory.batch_status, version):
        words[row + EventField.EPOCHS + epoch % 2] = epoch + 1
        words[row + EventField.CLOSED + epoch % 2] = sum(batch_status.counts(memory.batch_status, epoch, version))
    words[row + EventField.VERSION] = version  # that of a resumed run, which has no rows yet


def _row(memory: SharedMemory, number: int) -> int:
    return number % memory.sizes.log_rows * EVENT_WORDS
