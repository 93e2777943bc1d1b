"""One timeline of all workers: their first spans on the server's clock, whatever the clocks of their nodes say.

A worker asks the server for its time when it joins. The answer was read between the question and its arrival, so the
shortest of several round trips says how far the clocks differ, to within half of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from paceline.trace import Span

SPANS_KEPT = 256
"""Of each worker and of the server: enough to see how computing and exchanging interleave."""
ROUND_TRIPS = 5


class TimedSpan(NamedTuple):
    what: str
    start_s: float
    end_s: float


def clock_offset(ask: Callable[[], float], clock: Callable[[], float] = time.monotonic) -> float:
    """What to add to this process's clock to get the one that `ask` reads."""
    trips = []
    for _ in range(ROUND_TRIPS):
        sent_s = clock()
        answer_s = ask()
        received_s = clock()
        trips.append((received_s - sent_s, answer_s - (sent_s + received_s) / 2))
    return min(trips)[1]


class WorkerSpans:
    """A worker's spans since it joined, until they are reported."""

    def __init__(self, offset_s: float) -> None:
        self.offset_s, self.count = offset_s, 0
        self.waiting: list[TimedSpan] = []

    def add(self, what: str, start_s: float, end_s: float) -> None:
        if self.count < SPANS_KEPT:
            self.count += 1
            self.waiting.append(TimedSpan(what, start_s + self.offset_s, end_s + self.offset_s))

    def take(self) -> tuple[TimedSpan, ...]:
        taken, self.waiting = tuple(self.waiting), []
        return taken


class Timeline:
    """The server's side: what workers have reported, and its own updates."""

    def __init__(self) -> None:
        self._spans: dict[str, list[TimedSpan]] = {}

    def add(self, who: str, *spans: TimedSpan) -> None:
        kept = self._spans.setdefault(who, [])
        kept.extend(spans[: SPANS_KEPT - len(kept)])

    def since(self, began_s: float) -> list[Span]:
        """All spans, in seconds after the run began."""
        return [
            Span(who, one.what, one.start_s - began_s, one.end_s - began_s)
            for who, spans in sorted(self._spans.items())
            for one in spans
        ]
