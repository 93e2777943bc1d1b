"""One record of time: a span says who spent time on which part and layer, from when to when.

A measured, a simulated and a real run all return a `Trace`, so prediction error is a subtraction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter

PARTS = (
    "load", "copy", "forward", "backward", "scale", "clip", "update", "communicate", "validate", "idle", "loop",
    "unattributed",
)  # fmt: skip
"""What an iteration's time goes to. `loop` is the loop's own work; what no other part explains is `unattributed`."""


@dataclass(frozen=True)
class Span:
    """An interval of time that somebody (`who`) spent on one part of the work."""

    who: str
    part: str
    """One of `PARTS` in an iteration; a whole run also has parts like `prepare` and `checkpoint`."""
    start_s: float
    end_s: float
    note: str = ""
    layer: str = ""

    @property
    def duration_s(self) -> float:
        return self.end_s - self.start_s


@dataclass(frozen=True)
class Trace:
    """Spans of time: measured, predicted or simulated."""

    spans: tuple[Span, ...] = ()

    def total_s(self, part: str) -> float:
        return sum(span.duration_s for span in self.spans if span.part == part)

    def parts(self) -> tuple[str, ...]:
        """The different parts, in order of first appearance."""
        return tuple(dict.fromkeys(span.part for span in self.spans))

    def layers_s(self, part: str) -> dict[str, float]:
        """Seconds of each layer in one part; the rows add up to `total_s`."""
        found: dict[str, float] = {}
        for span in self.spans:
            if span.part == part:
                found[span.layer] = found.get(span.layer, 0.0) + span.duration_s
        return found


@dataclass
class Recorder:
    """Collects spans while something runs. The clock can be replaced, so tests need not wait."""

    who: str = "main"
    clock: Callable[[], float] = perf_counter
    spans: list[Span] = field(default_factory=list)
    origin_s: float | None = None

    def now(self) -> float:
        """Seconds since the first call."""
        if self.origin_s is None:
            self.origin_s = self.clock()
        return self.clock() - self.origin_s

    @contextmanager
    def span(self, part: str, note: str = "") -> Iterator[None]:
        start_s = self.now()
        try:
            yield
        finally:
            self.spans.append(Span(self.who, part, start_s, self.now(), note))

    def trace(self) -> Trace:
        return Trace(tuple(self.spans))
