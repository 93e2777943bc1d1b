"""How a task gets from the server to a worker: a few words in shared memory for each of the next few tasks."""

from __future__ import annotations

from paceline.strategy.instructions import Compute
from paceline.train.local.memory import Memory
from paceline.train.local.words import SLOT_WORDS, TASK_WORDS, Of, Task


def give(memory: Memory, task: Compute, life: int, steps_since_fetch: int) -> None:
    """Lays a task into a worker's mailbox. The one that was in its place is done."""
    entry = memory.mailboxes[task.worker, task.sequence % memory.sizes.ahead]
    batches, fetches = len(task.batches), len(task.fetches)
    version = -1 if task.version is None else task.version
    words = (life, 0, task.epoch, version, batches, fetches, *task.batches, *task.fetches)  # in the order of `Task`
    entry[Task.SEQUENCE] = 0
    entry[: len(words)] = words
    entry[Task.SEQUENCE] = task.sequence
    slot = task.worker * SLOT_WORDS
    memory.slots[slot + Of.STEPS_SINCE_FETCH] = steps_since_fetch
    memory.slots[slot + Of.GIVEN] = task.sequence


def given(memory: Memory, worker: int, sequence: int) -> tuple[int, Compute] | None:
    """The task of that sequence if it is in the mailbox, and the life it was given to."""
    entry = memory.mailboxes[worker, sequence % memory.sizes.ahead]
    life, found, epoch, version, batches, fetches, *rest = entry[: TASK_WORDS + 2].tolist()
    if found != sequence:
        return None
    if batches > 1:
        rest = entry[TASK_WORDS : TASK_WORDS + batches + fetches].tolist()
    asked = None if version < 0 else version
    task = Compute(worker, sequence, epoch, tuple(rest[:batches]), tuple(rest[batches : batches + fetches]), asked)
    return life, task


def next_tasks(memory: Memory, worker: int, life: int, done: int) -> list[Compute]:
    """The tasks given to this life after number `done`, in their order."""
    last = memory.slots[worker * SLOT_WORDS + Of.GIVEN]
    found = (given(memory, worker, s) for s in range(max(done + 1, last - memory.sizes.ahead + 1), last + 1))
    return [one[1] for one in found if one is not None and one[0] == life]
