"""A server's first look around: at the beginning of a run, after a checkpoint, or after its predecessor's death."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paceline.strategy.instructions import Compute
from paceline.train.local import made, mailbox, marks
from paceline.train.local.memory import Memory
from paceline.train.local.settings import Settings
from paceline.train.local.standing import position_of
from paceline.train.local.words import LINE, SLOT_WORDS, Control, Of, Payload

if TYPE_CHECKING:
    from paceline.train.local.server_process import ServerLoop


def recovered(memory: Memory, settings: Settings, loop: ServerLoop) -> None:
    """Rebuilds the coordinator: what is done, what workers have in hand, and what lies in their slots."""
    coordinator, slots = loop.coordinator, memory.slots
    marks.forget_later(memory.marks, memory.control[Control.VERSION])
    if memory.sizes.own_updates:
        made.count(memory)
    coordinator.restore(position_of(memory))
    if loop.sums is not None:
        loop.sums.look_around()
    tasks, waiting = [], []
    for worker in range(settings.workers):
        slot = worker * SLOT_WORDS
        joined, last = slots[slot + Of.JOINED], slots[slot + Of.GIVEN]
        alive = joined if joined > slots[slot + Of.DEAD] else 0
        first = slot + Of.PAYLOAD + Payload.READY
        seen = loop.seen[worker] = [slots[first], slots[first + LINE]]  # looked at once: its worker goes on
        adopted, kept = False, set()
        for sequence in range(max(last - memory.sizes.ahead, 0) + 1, last + 1):
            is_ready = seen[sequence % 2] == sequence
            found = mailbox.given(memory, worker, sequence)
            if found is None:
                continue
            life, task = found
            if life == alive:  # what it keeps between two tasks it has still, also when it has nothing to do
                coordinator.members[worker].steps = slots[slot + Of.STEPS_SINCE_FETCH]
            open_still = not _is_closed(memory, task) and _round_is_open(memory, settings, task)
            if loop.sums is not None and loop.sums.is_lost(worker, sequence):
                open_still = False
            if open_still and (is_ready or (alive and life == alive)):
                tasks.append(task)
                loop.tasks[worker, sequence] = task
                adopted = True
                if is_ready:
                    kept.add(sequence % 2)
                    waiting.append((worker, sequence % 2, sequence))
        for place in {0, 1} - kept:  # nobody will ask for it again
            slots[slot + Of.ACKNOWLEDGED + place] = seen[place]
            loop.bells[worker].ring()
        if adopted:
            loop.lives[worker] = alive
    if loop.sums is not None:
        loop.sums.keep_only(loop.tasks)
    coordinator.adopt(tasks, [worker for worker, life in enumerate(loop.lives) if life])
    for worker, place, sequence in waiting:
        loop.deal_with(worker, place, sequence)
    loop.knows_all = True


def _is_closed(memory: Memory, task: Compute) -> bool:
    """Whether a batch of it is counted already: the update was published before the payload was acknowledged."""
    version = memory.control[Control.VERSION]
    if task.epoch < memory.control[Control.EPOCHS_DONE]:
        return True
    return bool(marks.closed(memory.marks, task.epoch, version)[list(task.batches)].any())


def _round_is_open(memory: Memory, settings: Settings, task: Compute) -> bool:
    """Whether a group still waits for a task of one of its rounds; others are done anew."""
    if task.version is None:
        return True
    if memory.snapshots:
        group = settings.strategy.group_of(task.worker, settings.workers)
        return memory.snapshot_versions[group] == task.version + 1
    return task.version == memory.control[Control.VERSION]
