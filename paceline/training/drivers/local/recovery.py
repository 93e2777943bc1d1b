"""Rebuilds the server's state from shared memory: at the start of a run, after a resume, or after a server died."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paceline.strategy.instructions import Compute
from paceline.training.drivers.local import batch_status, mailbox
from paceline.training.drivers.local.fields import LINE, ControlField, HeaderField, PayloadField, SlotField
from paceline.training.drivers.local.position import position_of

if TYPE_CHECKING:
    from paceline.training.drivers.local.server import Server


def recover(server: Server) -> None:
    """Rebuilds the coordinator: finished batches, tasks that workers have, and payloads in their slots."""
    memory, coordinator = server.memory, server.coordinator
    if server.workers_commit:
        server.events = memory.header[HeaderField.EVENTS]
    coordinator.restore(position_of(memory))
    tasks: list[Compute] = []
    waiting: list[tuple[int, int]] = []
    steps: dict[int, int] = {}
    for worker in range(server.settings.workers):
        slot = memory.slot(worker)
        alive = slot[SlotField.JOINED] if slot[SlotField.JOINED] > slot[SlotField.DEAD] else 0
        if not alive and slot[SlotField.PUSHED]:
            server.store.withdraw(worker)
        first = SlotField.PAYLOAD + PayloadField.READY
        seen = server.seen[worker] = [slot[first], slot[first + LINE]]  # read once: its worker continues meanwhile
        kept = set()
        for incarnation, task in mailbox.given(memory, worker):
            if incarnation == alive:  # what it keeps between two tasks it has still, also when it has nothing to do
                steps[worker] = slot[SlotField.STEPS_SINCE_FETCH]
                server.recovered[worker] = alive
            is_delivered = not server.workers_commit and seen[task.sequence % 2] == task.sequence
            is_ready = is_delivered and bool(server.whole_payload(worker, task.sequence))
            if not _is_open(server, task) or not (is_ready or (alive and incarnation == alive)):
                continue
            tasks.append(task)
            server.incarnations[worker] = alive
            if is_delivered:
                kept.add(task.sequence % 2)
            if is_ready:
                waiting.append((worker, task.sequence))
            elif is_delivered:  # it is looked at again when the others of its group have delivered
                seen[task.sequence % 2] = 0
        for place in {0, 1} - kept:  # nobody will ask for it again
            slot[SlotField.RELEASED + place] = seen[place]
            server.worker_bells[worker].notify()
    coordinator.adopt(tasks, [w for w, incarnation in enumerate(server.incarnations) if incarnation], steps)
    for worker, sequence in waiting:
        server.take_payload(worker, sequence)


def _is_open(server: Server, task: Compute) -> bool:
    """Whether a task is still pending; others are done or will be repeated."""
    memory = server.memory
    if task.epoch < memory.control[ControlField.EPOCHS_DONE]:
        return False
    if batch_status.closed(memory, task.epoch)[list(task.batches)].any():
        return False  # the update was committed before the payload was released
    if task.round is None or not server.workers_commit:
        return True
    group = server.settings.strategy.group_of(task.worker, server.settings.workers)
    return task.round >= memory.header[HeaderField.ROUNDS + group]
