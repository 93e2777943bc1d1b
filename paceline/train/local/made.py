"""Which payload made which version, where workers make updates themselves: the server reads it later, in that order.

A row is written before its version is published. With it goes how many batches of each open epoch are closed by then,
which is where in the rate's schedule the next update stands.
"""

from __future__ import annotations

from paceline.strategy.instructions import Compute
from paceline.train.local import marks
from paceline.train.local.memory import Memory
from paceline.train.local.words import MADE_WORDS, Control, Made


def write(memory: Memory, version: int, task: Compute, pulled: int) -> int:
    """`version` will be made of the payload of a task; how many batches of its epoch were closed before."""
    words = memory.made
    before, row = (version - 1) * MADE_WORDS % len(words), version * MADE_WORDS % len(words)
    words[row + Made.WORKER], words[row + Made.SEQUENCE], words[row + Made.PULLED] = task.worker, task.sequence, pulled
    which, epoch = task.epoch % 2, task.epoch + 1
    closed = words[before + Made.CLOSED + which] if words[before + Made.EPOCHS + which] == epoch else 0
    words[row + Made.EPOCHS + which], words[row + Made.CLOSED + which] = epoch, closed + len(task.batches)
    words[row + Made.EPOCHS + 1 - which] = words[before + Made.EPOCHS + 1 - which]
    words[row + Made.CLOSED + 1 - which] = words[before + Made.CLOSED + 1 - which]
    return closed


def read(memory: Memory, version: int) -> tuple[int, int, int]:
    """Worker, sequence, and the version that the payload was computed on."""
    row = version * MADE_WORDS % len(memory.made)
    worker, sequence, pulled = memory.made[row : row + Made.EPOCHS]
    return worker, sequence, pulled


def count(memory: Memory) -> None:
    """As of the newest version, by the marks: when a server starts, or something was closed without an update."""
    version, words = memory.control[Control.VERSION], memory.made
    row = version * MADE_WORDS % len(words)
    for which in (0, 1):
        words[row + Made.EPOCHS + which] = words[row + Made.CLOSED + which] = 0
    for epoch in marks.begun(memory.marks, version):
        words[row + Made.EPOCHS + epoch % 2] = epoch + 1
        words[row + Made.CLOSED + epoch % 2] = sum(marks.counts(memory.marks, epoch, version))
