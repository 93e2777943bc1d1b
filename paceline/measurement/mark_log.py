"""The marks of one instrumented iteration. Each mark starts a new span, so the spans partition the iteration.

A mark records when it began and when it ended. The time in between is overhead of the clock; all other time belongs to
exactly one span key: (part, row).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import wraps
from itertools import pairwise
from time import perf_counter_ns
from typing import Any

from paceline.trace import Span

SpanKey = tuple[str, str]

OUTSIDE = "(outside any module)"
RECOMPUTE = "(recomputed)"
SCORE = "(loss and accuracy)"
LOOP: SpanKey = ("loop", "")
VALIDATE: SpanKey = ("validate", "")


@dataclass
class MarkLog:
    """Marks of one iteration: (kind, key of the span that starts here, begun, ended), in nanoseconds."""

    clock: Callable[[], int] = perf_counter_ns
    marks: list[tuple[str, SpanKey, int, int]] = field(default_factory=list)
    coarse: bool = False
    """Whether there are to be marks between parts only, none at layers."""

    def mark(self, kind: str, key: SpanKey) -> None:
        begun = self.clock()
        self.marks.append((kind, key, begun, self.clock()))

    def mark_since(self, kind: str, key: SpanKey, begun: int) -> None:
        """Adds a mark whose own work began at `begun` and ends now."""
        self.marks.append((kind, key, begun, self.clock()))

    @property
    def current(self) -> SpanKey:
        """The key of the current span."""
        return self.marks[-1][1] if self.marks else LOOP

    def rename_current(self, key: SpanKey) -> None:
        """Gives the current span another key, from its beginning."""
        kind, _, begun, ended = self.marks[-1]
        self.marks[-1] = (kind, key, begun, ended)

    def drain(self) -> MarkLog:
        """Moves the marks to a new log; this one is then empty and can be used again."""
        marks, self.marks = self.marks, []
        return MarkLog(self.clock, marks, self.coarse)

    def _spans_ns(self, cost_s: dict[str, float]) -> Iterator[tuple[SpanKey, float, float]]:
        """Key, start and end of every span. What a mark costs outside its two readings lies half on each side of it."""
        half_ns = {kind: 0.5e9 * seconds for kind, seconds in cost_s.items()}
        for (kind, key, _, start), (next_kind, _, end, _) in pairwise(self.marks):
            yield key, start + half_ns.get(kind, 0.0), end - half_ns.get(next_kind, 0.0)

    def durations_s(self, cost_s: dict[str, float]) -> dict[SpanKey, float]:
        """Seconds by span key, without what the marks cost."""
        total: dict[SpanKey, float] = {}
        for key, start, end in self._spans_ns(cost_s):
            total[key] = total.get(key, 0.0) + (end - start) * 1e-9
        return total

    def costs_s(self, cost_s: dict[str, float]) -> dict[SpanKey, float]:
        """What the marks cost, by the span keys from which `durations_s` subtracts it."""
        total: dict[SpanKey, float] = {}
        for (kind, key, *_), (next_kind, *_) in pairwise(self.marks):
            total[key] = total.get(key, 0.0) + 0.5 * (cost_s.get(kind, 0.0) + cost_s.get(next_kind, 0.0))
        return total

    def spans(self, who: str, cost_s: dict[str, float], starts_s: float = 0.0, note: str = "") -> list[Span]:
        """The spans, the first of which starts at `starts_s`; one that the cost of marks leaves nothing of is left
        out."""
        origin = self.marks[0][3] - starts_s * 1e9
        return [
            Span(who, part, (start - origin) * 1e-9, (end - origin) * 1e-9, note, row)
            for (part, row), start, end in self._spans_ns(cost_s)
            if end > start
        ]

    def wall_s(self) -> float:
        """From the first mark to the last, including overhead."""
        return (self.marks[-1][2] - self.marks[0][3]) * 1e-9

    def overhead_s(self) -> float:
        """Time spent in the marks themselves, without the first and the last."""
        return sum(ended - begun for _, _, begun, ended in self.marks[1:-1]) * 1e-9


def marked(original: Callable[..., Any], log: MarkLog, inside: SpanKey, after: SpanKey | None) -> Callable[..., Any]:
    """`original` with a mark before and after it. With `after` None, the interrupted span resumes."""

    @wraps(original)  # a scheduler looks for its own attribute on an optimizer's step
    def call(*arguments: Any, **keywords: Any) -> Any:
        resumed = log.current if after is None else after
        log.mark("around", inside)
        try:
            return call.__wrapped__(*arguments, **keywords)
        finally:
            log.mark("around", resumed)

    return call


def unwrap(outermost: Any, wrapper: Any, put_back: Callable[[Any], None]) -> None:
    """Removes `wrapper` from a chain of wrappers; another clock may have wrapped it in the meantime."""
    if outermost is wrapper:
        put_back(wrapper.__wrapped__)
        return
    outer = outermost
    while outer is not None and getattr(outer, "__wrapped__", None) is not wrapper:
        outer = getattr(outer, "__wrapped__", None)
    if outer is not None:
        outer.__wrapped__ = wrapper.__wrapped__


def mark_around(
    thing: Any, method: str, log: MarkLog, inside: SpanKey, after: SpanKey | None = None
) -> Callable[[], None]:
    """Adds marks before and after a method of one object or class; returns a function that removes them."""
    inherited = method not in vars(thing)
    wrapper = marked(getattr(thing, method), log, inside, after)
    setattr(thing, method, wrapper)

    def put_back(original: Any) -> None:
        if inherited:
            delattr(thing, method)
        else:
            setattr(thing, method, original)

    return lambda: unwrap(vars(thing).get(method), wrapper, put_back)
