"""Which rounds a group's members average among themselves, as the server knows it, and the means that come of it.

Members that are all there form a process group. In a round in which each of them has one part they average, and each
pushes its part of the mean; the server takes the round when it has all of it. Whatever happens to a member, its group
is dissolved: those that have pushed a part of a mean push their whole payloads instead, so that nothing is computed
twice and nothing depends on who was told first. The next round that all begin is averaged by a new formation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from paceline.strategy.gradient_mean import Payload
from paceline.strategy.group_averaging import AVERAGED_FROM_BYTES
from paceline.strategy.instructions import Compute
from paceline.training.drivers.ray.job import Job
from paceline.training.drivers.ray.mailbox import ANSWER_WITHIN_S, Mailbox
from paceline.training.drivers.ray.messages import Formation, Push
from paceline.training.drivers.ray.pieces import Array, Pieces
from paceline.training.drivers.ray.vector_parts import VectorParts, vector_pieces


class Mean(NamedTuple):
    """The parts of a mean that members have pushed, by worker."""

    round: int
    formation: int
    parts: dict[int, tuple[Push, Sequence[Array]]]


class Formations:
    def __init__(self, job: Job, mailboxes: list[Mailbox]) -> None:
        self.job, self.mailboxes = job, mailboxes
        self.members = job.workers // job.groups
        self.parts = VectorParts(job.layout, self.members)
        """In which members fetch parameters."""
        self.mean_parts = VectorParts(job.layout, self.members, vector_pieces(job.layout, job.buckets))
        self.pieces = Pieces(self.mean_parts.size, job.layout.torch_dtype)
        self._standing: dict[int, int] = {}
        """The formation of each group that has one; the numbers grow."""
        self.formed = 0
        """Formations so far."""
        self._rounds: dict[int, Mean] = {}
        """The round that each group averages."""
        self._decided: dict[int, int] = {}
        """The last round of each group for which it was decided whether it is."""
        self.notes: dict[tuple[int, str], bytes] = {}
        """What members leave for each other, by formation and key."""

    def _group(self, worker: int) -> int:
        return self.job.strategy.group_of(worker, self.job.workers)

    def _workers(self, group: int) -> list[int]:
        return [worker for worker in range(self.job.workers) if self._group(worker) == group]

    def of(self, task: Compute) -> Formation | None:
        """The formation in which a worker averages the payload of a task; None: it pushes its whole payload."""
        if self.job.collective == "server" or task.round is None or task.parts != self.members:
            return None
        group = self._group(task.worker)
        if self._decided.get(group) != task.round:
            self._decided[group] = task.round
            self._rounds.pop(group, None)
            if self._is_whole(group, task.round):
                self._rounds[group] = Mean(task.round, self._form(group), {})
        found = self._rounds.get(group)
        if found is None or found.round != task.round:
            return None
        return Formation(found.formation, self._workers(group).index(task.worker), self.members)

    def _form(self, group: int) -> int:
        if group not in self._standing:
            self.formed += 1
            self._standing[group] = self.formed
        return self._standing[group]

    def _is_whole(self, group: int, number: int) -> bool:
        """Whether every member has one task of the round, and averaging is worth it."""
        boxes = [self.mailboxes[worker] for worker in self._workers(group)]
        if not self.job.collective_always:
            small = self.job.payload_size * self.job.layout.torch_dtype.itemsize < AVERAGED_FROM_BYTES
            if small or all(box.is_near for box in boxes):
                return False
        return all([task.round for task in (*box.computing.values(), *box.todo)] == [number] for box in boxes)

    def add(self, worker: int, push: Push, pieces: Sequence[Array]) -> dict[int, tuple[Push, Payload | None]] | None:
        """Adds a part of a mean. The last part returns all pushes of the round, the first of them with the mean. None:
        other parts are missing, or the group was dissolved and the worker is asked for its whole payload."""
        group, mailbox = self._group(worker), self.mailboxes[worker]
        found = self._rounds.get(group)
        if found is None or found.round != mailbox.computing[push.sequence].round:
            mailbox.ask_whole()
            return None
        mailbox.delivered = True
        found.parts[worker] = push, pieces
        if len(found.parts) < self.members:
            return None
        del self._rounds[group]
        mean = torch.empty(self.job.layout.size, dtype=self.job.layout.torch_dtype)
        for rank, member in enumerate(self._workers(group)):
            self.mailboxes[member].delivered = False
            self.mean_parts.put(rank, self.pieces.joined(found.parts[member][1]), mean)
        first = min(found.parts, key=lambda member: self._batches(member, found.parts[member][0]))
        payload = Payload(mean, push.samples, push.steps)
        return {member: (push, payload if member == first else None) for member, (push, _) in found.parts.items()}

    def _batches(self, worker: int, push: Push) -> tuple[int, ...]:
        return self.mailboxes[worker].computing[push.sequence].batches

    def exchange_note(self, worker: int, formation: int, key: str, note: bytes | None) -> tuple[bool, bytes]:
        """Stores a member's note for the others, or waits for one; returns whether the formation still exists."""
        group, mailbox = self._group(worker), self.mailboxes[worker]
        mailbox.awaits_others = True
        if note is not None:
            self.notes[formation, key] = note
            self._tell(group)
        elif key:
            mailbox.bell.wait_for(
                lambda: (formation, key) in self.notes or self._standing.get(group) != formation, ANSWER_WITHIN_S
            )
        return self._standing.get(group) == formation, self.notes.get((formation, key), b"")

    def is_averaged(self, worker: int) -> bool:
        """Whether the worker's group averages its current round."""
        return self._group(worker) in self._rounds

    def dissolve(self, worker: int) -> None:
        """Stops averaging in a worker's group, because the worker died or could not average."""
        group = self._group(worker)
        formation, found = self._standing.pop(group, None), self._rounds.pop(group, None)
        self.notes = {key: note for key, note in self.notes.items() if key[0] != formation}
        self._tell(group)
        for member in found.parts if found is not None else ():
            if self.mailboxes[member].delivered:
                self.mailboxes[member].ask_whole()

    def _tell(self, group: int) -> None:
        for member in self._workers(group):
            self.mailboxes[member].bell.notify_all()
