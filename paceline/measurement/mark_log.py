"""The marks of one instrumented iteration. Each mark starts a new span, so the spans partition the iteration.

A mark records when it began and when it ended. The time in between is overhead of the clock; all other time belongs to
exactly one span key: (part, row).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from time import perf_counter_ns
from typing import Any

SpanKey = tuple[str, str]

PARTS = ("load", "copy", "forward", "backward", "update", "communicate", "idle", "other")
OUTSIDE = "(outside any module)"
RECOMPUTE = "(recomputed)"
SCORE = "(loss and accuracy)"


@dataclass
class MarkLog:
    """Marks of one iteration: (kind, key of the span that starts here, begun, ended), in nanoseconds."""

    clock: Callable[[], int] = perf_counter_ns
    marks: list[tuple[str, SpanKey, int, int]] = field(default_factory=list)

    def mark(self, kind: str, key: SpanKey) -> None:
        begun = self.clock()
        self.marks.append((kind, key, begun, self.clock()))

    def mark_since(self, kind: str, key: SpanKey, begun: int) -> None:
        """Adds a mark whose own work began at `begun` and ends now."""
        self.marks.append((kind, key, begun, self.clock()))

    @property
    def current(self) -> SpanKey:
        """The key of the current span."""
        return self.marks[-1][1] if self.marks else ("other", "")

    def drain(self) -> MarkLog:
        """Moves the marks to a new log; this one is then empty and can be used again."""
        marks, self.marks = self.marks, []
        return MarkLog(self.clock, marks)

    def durations_s(self, cost_s: dict[str, float]) -> dict[SpanKey, float]:
        """Seconds by span key. The cost of a mark outside its two readings is subtracted, half on each side."""
        total: dict[SpanKey, float] = {}
        for (kind, key, _, start), (next_kind, _, end, _) in zip(self.marks, self.marks[1:], strict=False):
            cost = 0.5 * (cost_s.get(kind, 0.0) + cost_s.get(next_kind, 0.0))
            total[key] = total.get(key, 0.0) + (end - start) * 1e-9 - cost
        return total

    def wall_s(self) -> float:
        """From the first mark to the last, including overhead."""
        return (self.marks[-1][2] - self.marks[0][3]) * 1e-9

    def overhead_s(self) -> float:
        """Time spent in the marks themselves, without the first and the last."""
        return sum(ended - begun for _, _, begun, ended in self.marks[1:-1]) * 1e-9


def mark_around(thing: Any, method: str, log: MarkLog, inside: SpanKey, after: SpanKey) -> Callable[[], None]:
    """Adds marks before and after a method of one object; returns a function that removes them."""
    original = getattr(thing, method)
    own = vars(thing).get(method)

    @wraps(original)  # a scheduler looks for its own attribute on an optimizer's step
    def marked(*arguments: Any, **keywords: Any) -> Any:
        log.mark("around", inside)
        try:
            return original(*arguments, **keywords)
        finally:
            log.mark("around", after)

    def undo() -> None:
        if own is None:
            delattr(thing, method)
        else:
            setattr(thing, method, own)

    setattr(thing, method, marked)
    return undo
