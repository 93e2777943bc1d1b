"""A log in which workers report to the server: the updates they made and the payloads they refused.

The holder of the writer lock appends rows; the number of rows is published together with the update.
"""

from __future__ import annotations

from typing import NamedTuple

from paceline.strategy.instructions import Compute
from paceline.training.drivers.local.fields import HeaderField
from paceline.training.drivers.local.shared_memory import EVENT_WORDS, SharedMemory

COMMITTED, REFUSED = range(2)


class LogEvent(NamedTuple):
    kind: int
    worker: int
    sequence: int
    pulled: int


def add(memory: SharedMemory, header: memoryview, kind: int, task: Compute, pulled: int = 0) -> None:
    number = header[HeaderField.EVENTS] = header[HeaderField.EVENTS] + 1
    log, row = memory.log, _row(memory, number)
    log[row], log[row + 1], log[row + 2], log[row + 3] = kind, task.worker, task.sequence, pulled


def read_event(memory: SharedMemory, number: int) -> LogEvent:
    row = _row(memory, number)
    return LogEvent(*memory.log[row : row + EVENT_WORDS])


def _row(memory: SharedMemory, number: int) -> int:
    return number % memory.log_rows * EVENT_WORDS
