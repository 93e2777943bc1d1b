"""How a task gets from the server to a worker: a mailbox in shared memory with an entry for each of the next few tasks.

An entry is the task's sequence, written last, a length, and the incarnation and the task as bytes.
"""

from __future__ import annotations

import marshal

from paceline.strategy.instructions import Compute
from paceline.training.drivers.local.fields import SLOT_WORDS, SlotField
from paceline.training.drivers.local.shared_memory import SharedMemory


def put(memory: SharedMemory, task: Compute, incarnation: int, steps_since_fetch: int) -> None:
    """Puts a task into a worker's mailbox, in place of one that is done."""
    words, entry = memory.mailboxes, _entry(memory, task.worker, task.sequence)
    data = marshal.dumps((incarnation, *task))
    words[entry] = 0
    words[entry + 1] = len(data)
    memory.mailbox_bytes[8 * (entry + 2) : 8 * (entry + 2) + len(data)] = data
    words[entry] = task.sequence
    slot = task.worker * SLOT_WORDS
    memory.slots[slot + SlotField.STEPS_SINCE_FETCH] = steps_since_fetch
    memory.slots[slot + SlotField.GIVEN] = task.sequence


def get(memory: SharedMemory, worker: int, sequence: int) -> tuple[int, Compute] | None:
    """The task with this sequence number, if it is in the mailbox, and the incarnation it was assigned to."""
    words, entry = memory.mailboxes, _entry(memory, worker, sequence)
    if words[entry] != sequence:
        return None
    try:
        found = marshal.loads(memory.mailbox_bytes[8 * (entry + 2) : 8 * (entry + 2) + words[entry + 1]])
    except (EOFError, ValueError, TypeError):
        found = ()
    if words[entry] != sequence:  # a later task has just taken its place
        return None
    return found[0], Compute(*found[1:])


def _entry(memory: SharedMemory, worker: int, sequence: int) -> int:
    sizes = memory.sizes
    return (worker * sizes.ahead + sequence % sizes.ahead) * sizes.task_words


def is_of_round(memory: SharedMemory, worker: int, sequence: int, number: int | None) -> bool:
    """Whether that task is part of its group's round `number`."""
    found = get(memory, worker, sequence)
    return found is not None and found[1].round == number


def given(memory: SharedMemory, worker: int, done: int = 0) -> list[tuple[int, Compute]]:
    """The tasks in a worker's mailbox after number `done`, in order, each with its incarnation."""
    last = memory.slots[worker * SLOT_WORDS + SlotField.GIVEN]
    found = (get(memory, worker, s) for s in range(max(done + 1, last - memory.sizes.ahead + 1), last + 1))
    return [one for one in found if one is not None]


def next_tasks(memory: SharedMemory, worker: int, incarnation: int, done: int) -> list[Compute]:
    """The tasks assigned to this incarnation after number `done`, in order."""
    return [task for its, task in given(memory, worker, done) if its == incarnation]
