"""When a process that finishes nothing counts as hung: a slow batch is not a hang."""

from __future__ import annotations

import statistics

from paceline.training.settings import DriverSettings

REMEMBERED = 64
"""Steps whose durations the median is of."""
IDLE_STEPS, BUSY_STEPS = 10.0, 50.0
"""A process that uses no CPU time, or some, may be silent for this many median steps, if that is longer."""
IDLE_SHARE = 0.01
"""Of a core: less CPU time than that counts as none."""


class StepWatch:
    """How long one process has finished nothing, and what it did in that time. The clock is the caller's, for tests."""

    def __init__(self, now_s: float) -> None:
        self.beat_s = now_s
        self._durations_s: list[float] = []
        self._steps = 0
        self._cpu_s: float | None = None

    def seen(self, beat_s: float, steps: int) -> None:
        """Its last sign of life, after a step or while it waits, and how many steps were finished by then."""
        if beat_s <= self.beat_s:
            return
        if steps > self._steps:
            self._durations_s.append((beat_s - self.beat_s) / (steps - self._steps))
            del self._durations_s[:-REMEMBERED]
        self.beat_s, self._cpu_s, self._steps = beat_s, None, max(self._steps, steps)

    def verdict(self, now_s: float, cpu_s: float, limits: DriverSettings) -> str | None:
        """Why it counts as hung, if it does; `cpu_s` is all the CPU time that it has used."""
        silent_s, median_s = now_s - self.beat_s, statistics.median(self._durations_s or [0.0])
        if self._cpu_s is None:
            self._cpu_s = cpu_s
        limit_s = max(limits.idle_timeout, IDLE_STEPS * median_s)
        if silent_s > limit_s and cpu_s - self._cpu_s < IDLE_SHARE * silent_s:
            return f"finished nothing and used no CPU time for {limit_s:.3g} s (idle_timeout)"
        limit_s = max(limits.busy_timeout, BUSY_STEPS * median_s)
        return f"finished nothing for {limit_s:.3g} s (busy_timeout)" if silent_s > limit_s else None
