"""Which iterations the clock instruments: windows of consecutive iterations, each at a random place in its cycle.

The place is random because loops have periods of their own: with four micro-batches per update, every fortieth step
would always be the same one of the four. The random numbers are seeded, so that the processes of a distributed run,
which wait for each other, are slowed down in the same iterations.

Installing marks costs more than the marks themselves, and it leaves caches cold: the next two or three iterations are
some percent slower, with marks or without. The window for short iterations therefore starts with warm-up iterations
that are not recorded. Where windows are rare they record several iterations: a single one, of a third of a millisecond
on a shared machine, says little.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

MAX_INSTRUMENTED_SHARE = 1 / 20
"""Limit on the share of instrumented iterations, where windows are rare enough to choose their length."""
ALTERNATING_SHARE = 1 / 2
"""The share where nothing but measuring matters: then sampled and untouched iterations alternate, and meet the same
moments of a machine whose speed changes."""
MAX_WARMUP, MAX_RECORDED = 3, 8
FULL_WINDOW_EVERY = round((MAX_WARMUP + MAX_RECORDED) / MAX_INSTRUMENTED_SHARE)
"""From this many iterations between windows on, a window has its full length."""
ALTERNATING_EVERY = round((MAX_WARMUP + MAX_RECORDED) / ALTERNATING_SHARE)
COLD_S = 0.005
"""Cold caches matter to iterations shorter than this."""


@dataclass(frozen=True)
class SamplingWindow:
    start: int
    """Its first iteration; marks are installed before it."""
    recorded_from: int
    end: int
    """Its last iteration."""
    cycle: int
    """The iterations that it stands for."""

    @property
    def weight(self) -> float:
        """Iterations that each recorded one stands for."""
        return self.cycle / (self.end - self.recorded_from + 1)


def window_lengths(every: int, cold: bool = True, share: float = MAX_INSTRUMENTED_SHARE) -> tuple[int, int]:
    """How many iterations of a window are warm-up and how many are recorded, sampling once in `every`."""
    if every < 4:  # there is no iteration to spare
        return 0, 1
    instrumented = int(every * share)
    if instrumented < 4:
        return (1 if cold else 0), 1
    warmup = min(MAX_WARMUP, instrumented // 2) if cold else 0
    return warmup, min(MAX_RECORDED, instrumented - warmup)


@dataclass
class WindowPlan:
    """Places one window at random in each cycle of `every` iterations, `share` of them at most in the window."""

    share: float = MAX_INSTRUMENTED_SHARE
    random: Random = field(default_factory=lambda: Random(0))
    next_cycle: int = 0
    """The first iteration of the next cycle."""
    window: SamplingWindow | None = None

    def alternate(self) -> int:
        """Puts half of the iterations in windows of full length; returns the iterations of a cycle."""
        self.share = ALTERNATING_SHARE
        return ALTERNATING_EVERY

    @property
    def alternates(self) -> bool:
        return self.share == ALTERNATING_SHARE

    def at(self, number: int, every: int, cold: bool) -> SamplingWindow:
        """The window that iteration `number` is in, or the next one."""
        if self.window is None or number > self.window.end:
            warmup, recorded = window_lengths(every, cold, self.share)
            cycle = max(number, self.next_cycle)
            start = cycle + self.random.randrange(max(1, every - warmup - recorded + 1))
            self.window = SamplingWindow(start, start + warmup, start + warmup + recorded - 1, every)
            self.next_cycle = cycle + every
        return self.window
