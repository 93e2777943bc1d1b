"""How a task gets from the server to a worker: a few words in shared memory for each of the next few tasks."""

from __future__ import annotations

from paceline.strategy.instructions import Compute
from paceline.train.local.fields import SLOT_WORDS, TASK_WORDS, SlotField, TaskField
from paceline.train.local.shared_memory import SharedMemory


def put(memory: SharedMemory, task: Compute, incarnation: int, steps_since_fetch: int) -> None:
    """Puts a task into a worker's mailbox. The one that was in its place is done."""
    entry = memory.mailboxes[task.worker, task.sequence % memory.sizes.ahead]
    number = -1 if task.round is None else task.round
    words = (incarnation, 0, task.epoch, number, task.parts, len(task.batches), len(task.fetches))  # as in `TaskField`
    entry[TaskField.SEQUENCE] = 0
    entry[: len(words) + len(task.batches) + len(task.fetches)] = (*words, *task.batches, *task.fetches)
    entry[TaskField.SEQUENCE] = task.sequence
    slot = task.worker * SLOT_WORDS
    memory.slots[slot + SlotField.STEPS_SINCE_FETCH] = steps_since_fetch
    memory.slots[slot + SlotField.GIVEN] = task.sequence


def get(memory: SharedMemory, worker: int, sequence: int) -> tuple[int, Compute] | None:
    """The task of that sequence if it is in the mailbox, and the incarnation it was given to."""
    entry = memory.mailboxes[worker, sequence % memory.sizes.ahead]
    incarnation, found, epoch, number, parts, batches, fetches, *rest = entry[: TASK_WORDS + 2].tolist()
    if found != sequence:
        return None
    if batches > 1:
        rest = entry[TASK_WORDS : TASK_WORDS + batches + fetches].tolist()
    task = Compute(
        worker, sequence, epoch, tuple(rest[:batches]), tuple(rest[batches : batches + fetches]),
        None if number < 0 else number, parts,
    )  # fmt: skip
    return incarnation, task


def next_tasks(memory: SharedMemory, worker: int, incarnation: int, done: int) -> list[Compute]:
    """The tasks given to this incarnation after number `done`, in their order."""
    last = memory.slots[worker * SLOT_WORDS + SlotField.GIVEN]
    found = (get(memory, worker, s) for s in range(max(done + 1, last - memory.sizes.ahead + 1), last + 1))
    return [one[1] for one in found if one is not None and one[0] == incarnation]
