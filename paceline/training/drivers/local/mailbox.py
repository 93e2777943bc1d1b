"""How a task gets from the server to a worker: a few words in shared memory for each of the next few tasks."""

from __future__ import annotations

from paceline.strategy.instructions import Compute
from paceline.training.drivers.local.fields import SLOT_WORDS, TASK_WORDS, SlotField, TaskField
from paceline.training.drivers.local.shared_memory import SharedMemory


def put(memory: SharedMemory, task: Compute, incarnation: int, steps_since_fetch: int) -> None:
    """Puts a task into a worker's mailbox. The one that was in its place is done."""
    words, entry = memory.mailboxes, _entry(memory, task.worker, task.sequence)
    number = -1 if task.round is None else task.round
    words[entry + TaskField.SEQUENCE] = 0
    header = (incarnation, 0, task.epoch, number, task.parts, len(task.batches), len(task.fetches))  # as in `TaskField`
    for place, word in enumerate((*header, *task.batches, *task.fetches), entry):
        words[place] = word
    words[entry + TaskField.SEQUENCE] = task.sequence
    slot = task.worker * SLOT_WORDS
    memory.slots[slot + SlotField.STEPS_SINCE_FETCH] = steps_since_fetch
    memory.slots[slot + SlotField.GIVEN] = task.sequence


def get(memory: SharedMemory, worker: int, sequence: int) -> tuple[int, Compute] | None:
    """The task of that sequence if it is in the mailbox, and the incarnation it was given to."""
    words, entry = memory.mailboxes, _entry(memory, worker, sequence)
    if words[entry + TaskField.SEQUENCE] != sequence:
        return None
    incarnation, _, epoch, number, parts, batches, fetches = words[entry : entry + TASK_WORDS]
    rest = words[entry + TASK_WORDS : entry + TASK_WORDS + batches + fetches].tolist()
    task = Compute(
        worker, sequence, epoch, tuple(rest[:batches]), tuple(rest[batches : batches + fetches]),
        None if number < 0 else number, parts,
    )  # fmt: skip
    return incarnation, task


def _entry(memory: SharedMemory, worker: int, sequence: int) -> int:
    sizes = memory.sizes
    return (worker * sizes.ahead + sequence % sizes.ahead) * sizes.task_words


def next_tasks(memory: SharedMemory, worker: int, incarnation: int, done: int) -> list[Compute]:
    """The tasks given to this incarnation after number `done`, in their order."""
    last = memory.slots[worker * SLOT_WORDS + SlotField.GIVEN]
    found = (get(memory, worker, s) for s in range(max(done + 1, last - memory.sizes.ahead + 1), last + 1))
    return [one[1] for one in found if one is not None and one[0] == incarnation]
