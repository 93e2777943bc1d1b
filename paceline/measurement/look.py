"""How long the clock stays once it looks.

Putting marks in place costs more than the marks do, and it leaves caches cold: the next two or three iterations are
slower by some percent, with marks and without. So a look has iterations whose marks do not count, and where looks are
rare, several that do: one iteration alone, of a third of a millisecond on a shared machine, tells little.
"""

from __future__ import annotations

from dataclasses import dataclass

MOST_TOUCHED = 1 / 20
"""Of the iterations, where looks are rare enough to choose."""
MOST_SETTLING, MOST_KEPT = 3, 8
FULL = round((MOST_SETTLING + MOST_KEPT) / MOST_TOUCHED)
"""Iterations from one look to the next at which it has its full length."""
COLD_AFTER, COLD_S = 2, 0.005
"""Iterations after a look that are slower for it, where they are shorter than that."""


@dataclass(frozen=True)
class Look:
    settling: int
    kept: int

    @property
    def touched(self) -> int:
        return self.settling + self.kept


def look_of(every: int) -> Look:
    """The look that comes once in so many iterations."""
    if every < 4:  # there is no iteration to spare
        return Look(0, 1)
    touched = int(every * MOST_TOUCHED)
    if touched < 4:
        return Look(1, 1)
    settling = min(MOST_SETTLING, touched // 2)
    return Look(settling, min(MOST_KEPT, touched - settling))
