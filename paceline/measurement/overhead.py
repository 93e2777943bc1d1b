"""What measuring adds to a run: the prelude, and what instrumented iterations take longer than untouched ones."""

from __future__ import annotations

from dataclasses import dataclass

MAX_OVERHEAD = 0.01
"""Once there are enough samples, sampling is reduced until it adds no more than this share of the time."""
FIRST_WINDOWS = 20
"""Sampling windows before that."""
HOUR_S = 3600.0


@dataclass
class OverheadLog:
    prelude_s: float = 0.0
    """Work that is done once, whatever the length of the run: calibrating marks, tracing the first blocks, finding the
    device's peak rates."""
    prelude_iterations: int = 0
    """Training iterations done during the prelude, whose time does not count as overhead."""
    windows: int = 0
    instrumented: int = 0
    """Iterations in sampling windows, and how long they took, with installing and processing their marks."""
    instrumented_s: float = 0.0

    def add_prelude(self, iterations: int, seconds: float) -> None:
        self.prelude_iterations += iterations
        self.prelude_s += seconds

    def add_window(self, iterations: int, seconds: float) -> None:
        self.windows += 1
        self.instrumented += iterations
        self.instrumented_s += seconds

    def window_s(self, untouched_s: float) -> float:
        """What a sampling window adds."""
        return (self.instrumented_s - self.instrumented * untouched_s) / max(1, self.windows)

    def added_s(self, untouched_s: float) -> float:
        """What measuring added to this run."""
        return self._prelude_s(untouched_s) + self.windows * self.window_s(untouched_s)

    def added_in_an_hour_s(self, untouched_s: float, every: int) -> float:
        """What measuring would add to a run of an hour, with one window in `every` iterations at first."""
        window_s = self.window_s(untouched_s)
        share = min(MAX_OVERHEAD, window_s / (every * untouched_s))
        return self._prelude_s(untouched_s) + FIRST_WINDOWS * window_s + HOUR_S * share

    def _prelude_s(self, untouched_s: float) -> float:
        return self.prelude_s - self.prelude_iterations * untouched_s
