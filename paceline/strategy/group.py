"""Workers as the coordinator sees them, and the groups in which they wait for each other."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from paceline.strategy.instructions import Compute

Arrival = tuple[Compute, int]
"""A finished task, and the version its payload was computed on."""


@dataclass(slots=True)
class Member:
    """One worker, over all its restarts."""

    group: Group
    sequence: int = 0
    """Tasks given so far."""
    steps: int = 0
    """Steps since the last fetch; 0: the next step fetches."""
    tasks: dict[int, Compute] = field(default_factory=dict)
    """Given and not ready yet, by sequence."""
    unreleased: set[int] = field(default_factory=set)
    """Sequences of the payloads that are ready and not applied yet."""
    alive: bool = False
    ahead: int | None = None
    """Tasks it is given at a time, where that is not the same for all."""

    def is_free_for(self, one: Round) -> bool:
        """A worker does its tasks in order, so it may not have one of this round or of a later one."""
        last = next(reversed(self.tasks.values()), None)
        return last is None or (last.round is not None and last.round < one.number)

    def next_sequence(self, slots: int | None) -> int | None:
        """The number of its next task; the slot of the payload, that number modulo `slots`, must be free."""
        following = self.sequence + 1
        if slots is None:
            return following
        if not self.unreleased and next(iter(self.tasks), following) > following - slots:
            return following
        taken = {sequence % slots for sequence in (*self.tasks, *self.unreleased)}
        return next((s for s in range(following, following + slots) if s % slots not in taken), None)


@dataclass(slots=True)
class Round:
    """A part of the data for each worker of a group; their payloads make one contribution."""

    number: int
    epoch: int
    parts: int = 0
    todo: deque[tuple[int, ...]] = field(default_factory=deque)
    """Parts that no worker has: batches."""
    open: set[tuple[int, int]] = field(default_factory=set)
    """Tasks (worker, sequence) that the round waits for."""
    arrived: list[Arrival] = field(default_factory=list)
    pushed: set[int] = field(default_factory=set)
    """The workers that pushed them."""


@dataclass(slots=True)
class Group:
    """Workers that wait for each other."""

    number: int
    workers: list[int] = field(default_factory=list)
    """Workers that are alive or will be again, in order: a round has a part for each."""
    members: list[int] = field(default_factory=list)
    """The workers that are alive."""
    clock: int = 0
    """Rounds committed."""
    planned: int = 0
    """Rounds begun, committed ones included."""
    rounds: deque[Round] = field(default_factory=deque)
    """Begun and not committed, in order; of a worker by itself there are none."""
    applying: int = 0
    """Contributions committed and not applied yet."""

    @property
    def first_open(self) -> int:
        """The first round that is not committed; if there is none, the next."""
        return self.rounds[0].number if self.rounds else self.planned

    def awaits(self, task: Compute) -> bool:
        """Whether the payload of a task is wanted: its round is not committed, and waits for it."""
        found = self.round_of(task)
        return found is not None and (task.worker, task.sequence) in found.open

    def has_updated_before(self, task: Compute) -> bool:
        """Whether the update of the round before a task's is made."""
        return not self.applying and (task.round is None or self.first_open >= task.round)

    def round_of(self, task: Compute) -> Round | None:
        """The round that a task is part of; None: it is committed already."""
        for one in self.rounds:  # a loop, for every payload of a group asks twice
            if one.number == task.round:
                return one
        return None
