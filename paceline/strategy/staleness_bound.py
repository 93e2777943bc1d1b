"""How far groups may part: a group at clock c waits while the slowest is behind c - bound (stale-synchronous)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from paceline.strategy.group import Group


class StalenessBound:
    """Without a bound it counts nothing but the rounds of each group."""

    def __init__(self, bound: int | None) -> None:
        self.bound = bound
        self._clocks: Counter[int] = Counter()
        """How many groups with members stand at which clock."""

    def allows(self, group: Group) -> bool:
        """Whether the group may begin another round."""
        return self.bound is None or group.clock - min(self._clocks) <= self.bound

    def enter(self, group: Group) -> None:
        """A group has members again; one that was away need not catch up."""
        if self.bound is not None:
            group.clock = max(group.clock, min(self._clocks, default=0))
            self._clocks[group.clock] += 1

    def leave(self, group: Group) -> None:
        """A group has no members any more."""
        if self.bound is not None:
            self._leave(group.clock)

    def advance(self, group: Group) -> bool:
        """A group has committed a round; whether another may have waited for that."""
        freed = False
        if self.bound is not None and group.members:
            self._clocks[group.clock + 1] += 1
            freed = self._leave(group.clock)
        group.clock += 1
        return freed

    def skip_to(self, clock: int, groups: Iterable[Group]) -> bool:
        """Moves groups that are behind to `clock`, so that none waits for them; whether one may have waited."""
        freed = False
        for group in groups:
            if group.clock < clock:
                self._clocks[clock] += 1
                freed |= self._leave(group.clock)
                group.clock = clock
        return freed

    def _leave(self, clock: int) -> bool:
        self._clocks[clock] -= 1
        if self._clocks[clock]:
            return False
        del self._clocks[clock]
        return True
