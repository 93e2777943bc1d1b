"""The server's side of sums that the members of a group make among themselves: which rounds are added up so, and when
the payloads of a sum count.

A round is added up by its members if each of them gets a part of it at once. The server numbers the sum and says with
the tasks from which sum on these members have been together. Whoever could not take part hands over its own payload as
ever, and then, or when a member dies, the sum is given up: those whose share is in it only get their tasks once more.
So the sum counts for all of its tasks or for none, and what is left of the round is added up from the slots.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from paceline.strategy.group import Group
from paceline.strategy.instructions import Compute
from paceline.train.local import mailbox
from paceline.train.local.memory import Memory
from paceline.train.local.settings import Settings
from paceline.train.local.words import LINE, SLOT_WORDS, Control, Of, Payload

Key = tuple[int, int]
"""Worker and sequence of a task."""


@dataclass
class _Sum:
    number: int
    missing: set[Key]
    held: list[Key] = field(default_factory=list)
    """Payloads that are in it, and count when all are."""


class Sums:
    def __init__(self, memory: Memory, settings: Settings) -> None:
        self.memory, self.slots, self.control = memory, memory.slots, memory.control
        strategy, workers = settings.strategy, settings.workers
        self.group_of = [strategy.group_of(worker, workers) for worker in range(workers)]
        self.members = {g: [w for w in range(workers) if self.group_of[w] == g] for g in self.group_of}
        self.open: dict[int, _Sum] = {}
        """Of each group, until it is made or given up."""
        self.together: dict[int, tuple[int, tuple[int, ...]]] = {}
        """Of each group: since which sum, and which lives of its members."""

    def give(self, task: Compute, group: Group, lives: Sequence[int]) -> None:
        """Says with a task whether it is part of a sum, before it is given."""
        key = task.worker, task.sequence
        one = self.open.get(group.number)
        if (one is None or key not in one.missing) and self._is_whole(group):
            one = self.open[group.number] = self._begun(group)
            now = tuple(lives[worker] for worker in self.members[group.number])
            if self.together.get(group.number, (0, ()))[1] != now:
                self.together[group.number] = one.number, now
        is_part = one is not None and key in one.missing
        slot = task.worker * SLOT_WORDS
        self.slots[slot + Of.SUM] = one.number if one is not None and is_part else 0
        self.slots[slot + Of.TOGETHER_SINCE] = self.together[group.number][0] if is_part else 0

    def _is_whole(self, group: Group) -> bool:
        """Whether every member has a part of a round that has just begun."""
        if group.arrived or group.todo or len(group.open) < len(self.members[group.number]):
            return False
        return all(self.slots[worker * SLOT_WORDS + Of.GIVEN] < sequence for worker, sequence in group.open)

    def _begun(self, group: Group) -> _Sum:
        self.control[Control.SUMS] += 1
        return _Sum(self.control[Control.SUMS], set(group.open))

    def settle(self, worker: int, sequence: int) -> tuple[list[Key], list[Key]]:
        """A payload is ready: those that count now, and those that are lost and have to be computed again."""
        key, summed = (worker, sequence), summed_in(self.memory, worker, sequence)
        one = self.open.get(self.group_of[worker])
        if one is None or key not in one.missing:  # a sum that was given up meanwhile
            return ([], [key]) if summed else ([key], [])
        if summed != one.number:
            return [key], self.give_up(worker)
        one.missing.remove(key)
        one.held.append(key)
        if one.missing:
            return [], []
        del self.open[self.group_of[worker]]
        self.control[Control.SUMS_MADE] += 1
        return sorted(one.held), []

    def give_up(self, worker: int) -> list[Key]:
        """The sum that a worker has a part in, if there is one: payloads that are lost with it."""
        group = self.group_of[worker]
        one = self.open.pop(group, None)
        self.together.pop(group, None)
        if one is None:
            return []
        self.memory.given_up[group * LINE] = one.number
        self.control[Control.SUMS_GIVEN_UP] += 1
        return one.held

    # After a server's death

    def look_around(self) -> None:
        """Finds the sums under way; those that cannot come about any more are given up."""
        for group, members in self.members.items():
            number = max(self.slots[worker * SLOT_WORDS + Of.SUM] for worker in members)
            if number and self._may_come_about(number, members):
                keys = {(worker, self.slots[worker * SLOT_WORDS + Of.GIVEN]) for worker in members}
                self.open[group] = _Sum(number, keys)
            elif number:
                self.memory.given_up[group * LINE] = number

    def is_lost(self, worker: int, sequence: int) -> bool:
        """Whether a payload was part of a sum that was given up."""
        one, summed = self.open.get(self.group_of[worker]), summed_in(self.memory, worker, sequence)
        return summed > 0 and (one is None or one.number != summed)

    def keep_only(self, tasks: Collection[Key]) -> None:
        """Of sums that have become an update already nothing more is to come."""
        self.open = {group: one for group, one in self.open.items() if all(key in tasks for key in one.missing)}

    def _may_come_about(self, number: int, members: list[int]) -> bool:
        """Whether all payloads are in it, or those that are not may still come."""
        if self.memory.given_up[self.group_of[members[0]] * LINE] >= number:
            return False
        made, alive = [], []
        for worker in members:
            slot = worker * SLOT_WORDS
            last, joined = self.slots[slot + Of.GIVEN], self.slots[slot + Of.JOINED]
            found = mailbox.given(self.memory, worker, last)
            made.append(summed_in(self.memory, worker, last) == number)
            at_work = self.slots[slot + Of.SUM] == number and not _is_ready(self.memory, worker, last)
            lives = joined > self.slots[slot + Of.DEAD] and found is not None and found[0] == joined
            alive.append(lives and (made[-1] or at_work))
        return all(made) or all(alive)


def _line(worker: int, sequence: int) -> int:
    return worker * SLOT_WORDS + Of.PAYLOAD + sequence % 2 * LINE


def _is_ready(memory: Memory, worker: int, sequence: int) -> bool:
    return memory.slots[_line(worker, sequence) + Payload.READY] == sequence


def summed_in(memory: Memory, worker: int, sequence: int) -> int:
    """The sum that a payload is in; 0: it is not ready, or lies in its slot by itself."""
    return memory.slots[_line(worker, sequence) + Payload.SUMMED] if _is_ready(memory, worker, sequence) else 0


def with_numbers(memory: Memory, payloads: tuple[Key, ...]) -> tuple[Key, ...]:
    """Of a group's payloads those whose numbers lie in their slots: all, or the first worker's: the mean of all."""
    return (min(payloads),) if summed_in(memory, *payloads[0]) else payloads
