"""The tape of one instrumented iteration: at each mark the time changes hands, so the intervals are a partition.

A mark notes when it began and when it ended. What lies between is the clock's own time and belongs to no one;
everything else belongs to exactly one owner: (part, row).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from time import perf_counter_ns
from typing import Any

Owner = tuple[str, str]

PARTS = ("load", "copy", "forward", "backward", "update", "communicate", "idle", "other")
OUTSIDE = "(outside any module)"
RECOMPUTE = "(recomputed)"
SCORE = "(loss and accuracy)"


@dataclass
class Tape:
    """Marks of one iteration: (kind, owner from here on, begun, ended), in nanoseconds."""

    clock: Callable[[], int] = perf_counter_ns
    marks: list[tuple[str, Owner, int, int]] = field(default_factory=list)

    def mark(self, kind: str, owner: Owner) -> None:
        begun = self.clock()
        self.marks.append((kind, owner, begun, self.clock()))

    def mark_since(self, kind: str, owner: Owner, begun: int) -> None:
        """A mark whose own work began at `begun` and ends now."""
        self.marks.append((kind, owner, begun, self.clock()))

    @property
    def current(self) -> Owner:
        """Whose time it is now."""
        return self.marks[-1][1] if self.marks else ("other", "")

    def taken(self) -> Tape:
        """What is on it, on a tape of its own; this one is then empty, and whoever marks it goes on."""
        marks, self.marks = self.marks, []
        return Tape(self.clock, marks)

    def durations_s(self, cost_s: dict[str, float]) -> dict[Owner, float]:
        """Seconds of every owner. What a mark costs outside its own two readings is taken off, half on each side."""
        total: dict[Owner, float] = {}
        for (kind, owner, _, start), (next_kind, _, end, _) in zip(self.marks, self.marks[1:], strict=False):
            cost = 0.5 * (cost_s.get(kind, 0.0) + cost_s.get(next_kind, 0.0))
            total[owner] = total.get(owner, 0.0) + (end - start) * 1e-9 - cost
        return total

    def wall_s(self) -> float:
        """From the first mark to the last, the clock's own time included."""
        return (self.marks[-1][2] - self.marks[0][3]) * 1e-9

    def own_s(self) -> float:
        """What the marks between the ends took for themselves."""
        return sum(ended - begun for _, _, begun, ended in self.marks[1:-1]) * 1e-9


def around(thing: Any, method: str, tape: Tape, inside: Owner, after: Owner) -> Callable[[], None]:
    """Puts marks before and after a method of one object; what is returned takes them away again."""
    original = getattr(thing, method)
    own = vars(thing).get(method)

    @wraps(original)  # a scheduler looks for its own attribute on an optimizer's step
    def marked(*arguments: Any, **keywords: Any) -> Any:
        tape.mark("around", inside)
        try:
            return original(*arguments, **keywords)
        finally:
            tape.mark("around", after)

    def undo() -> None:
        if own is None:
            delattr(thing, method)
        else:
            setattr(thing, method, own)

    setattr(thing, method, marked)
    return undo
