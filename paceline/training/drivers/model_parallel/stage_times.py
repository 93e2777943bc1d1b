"""Where the time of one process of a divided network goes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

SPANS_KEPT = 400
"""The first ones of a process, so that the trace of a long run stays small."""


class StageTimes:
    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begins anew."""
        self.seconds: dict[str, float] = dict.fromkeys(("load", "forward", "backward", "communicate", "update"), 0.0)
        self.passing_s = 0.0
        """From the beginning of a step's first forward pass to the end of its last backward pass, all steps."""
        self.passes = 0
        self.spans: list[tuple[str, float, float]] = []
        self._room = SPANS_KEPT

    @contextmanager
    def span(self, part: str) -> Iterator[None]:
        start_s = perf_counter()
        try:
            yield
        finally:
            end_s = perf_counter()
            self.seconds[part] += end_s - start_s
            if self._room:
                self._room -= 1
                self.spans.append((part, start_s, end_s))

    def take_spans(self) -> list[tuple[str, float, float]]:
        """Those since the last call."""
        taken, self.spans = self.spans, []
        return taken

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Passes, or waiting for those of others: what is not computing is idle time."""
        start_s = perf_counter()
        yield
        self.passing_s += perf_counter() - start_s

    @property
    def idle_s(self) -> float:
        """While micro-batches are passed on: the time in which this process computed none."""
        return max(0.0, self.passing_s - self.seconds["forward"] - self.seconds["backward"])
