"""One record for what happened: spans say who did what, from when to when.

A measured, a simulated and a real run all return a `Trace`, so prediction error is a subtraction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter


@dataclass(frozen=True)
class Span:
    who: str
    what: str
    start_s: float
    end_s: float
    note: str = ""

    @property
    def duration_s(self) -> float:
        return self.end_s - self.start_s


@dataclass(frozen=True)
class Trace:
    spans: tuple[Span, ...] = ()

    def total_s(self, what: str) -> float:
        return sum(span.duration_s for span in self.spans if span.what == what)

    def whats(self) -> tuple[str, ...]:
        """The different things done, in order of first appearance."""
        return tuple(dict.fromkeys(span.what for span in self.spans))


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
    def span(self, what: str, note: str = "") -> Iterator[None]:
        start_s = self.now()
        try:
            yield
        finally:
            self.spans.append(Span(self.who, what, start_s, self.now(), note))

    def trace(self) -> Trace:
        return Trace(tuple(self.spans))
