"""How many consecutive iterations the clock instruments when it takes a sample.

Installing marks costs more than the marks themselves, and it leaves caches cold: the next two or three iterations are
some percent slower, with marks or without. A sampling window therefore starts with warm-up iterations that are not
recorded. Where windows are rare they record several iterations: a single one, of a third of a millisecond on a shared
machine, says little.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_INSTRUMENTED_SHARE = 1 / 20
"""Limit on the share of instrumented iterations, where windows are rare enough to choose their length."""
MAX_WARMUP, MAX_RECORDED = 3, 8
FULL_WINDOW_EVERY = round((MAX_WARMUP + MAX_RECORDED) / MAX_INSTRUMENTED_SHARE)
"""From this many iterations between windows on, a window has its full length."""
COLD_AFTER, COLD_S = 2, 0.005
"""This many iterations after a window are slower because of it, if iterations are shorter than `COLD_S`."""


@dataclass(frozen=True)
class SamplingWindow:
    warmup: int
    kept: int

    @property
    def instrumented(self) -> int:
        return self.warmup + self.kept


def sampling_window(every: int) -> SamplingWindow:
    """The window for sampling once in `every` iterations."""
    if every < 4:  # there is no iteration to spare
        return SamplingWindow(0, 1)
    instrumented = int(every * MAX_INSTRUMENTED_SHARE)
    if instrumented < 4:
        return SamplingWindow(1, 1)
    warmup = min(MAX_WARMUP, instrumented // 2)
    return SamplingWindow(warmup, min(MAX_RECORDED, instrumented - warmup))
