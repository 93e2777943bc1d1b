"""When a silent process counts as hung: a slow batch is not a hang.

A process is silent from its last heartbeat, which it gives after every step and while it waits for something.
"""

from __future__ import annotations

import statistics
from pathlib import Path

from paceline.training.settings import DriverSettings

REMEMBERED = 64
"""Steps whose durations the median is of."""


IDLE_STEPS, BUSY_STEPS = 10.0, 50.0
"""A process that uses no CPU time, or some, may be silent for this many median steps, if that is longer."""


class Silence:
    """How long one process has been silent, and what it did in that time. The clock is the caller's, for tests."""

    def __init__(self, process_id: int, started_s: float) -> None:
        self.process_id, self.beat_s, self.started_s = process_id, started_s, started_s
        self._steps: list[float] = []
        self._count = 0
        self._cpu_s: float | None = None
        self._stopped_since_s: float | None = None

    def seen(self, beat_s: float, steps: int) -> None:
        """The last heartbeat, and how many steps were finished by then."""
        if steps > self._count and beat_s > self.beat_s:
            self._steps.append((beat_s - self.beat_s) / (steps - self._count))
            del self._steps[:-REMEMBERED]
        if beat_s > self.beat_s:
            self.beat_s, self._cpu_s = beat_s, None
        self._count = max(self._count, steps)

    def verdict(self, now_s: float, limits: DriverSettings, *, working: bool) -> str | None:
        """Why it counts as hung, if it does."""
        state, cpu_s = process_state(self.process_id)
        self._stopped_since_s = (self._stopped_since_s or now_s) if state == "T" else None
        if self._stopped_since_s is not None and now_s - self._stopped_since_s > limits.stopped_timeout:
            return f"was stopped for more than {limits.stopped_timeout:g} s (stopped_timeout)"
        silent_s = now_s - self.beat_s
        if self._cpu_s is None:
            self._cpu_s = cpu_s
        if not working:
            if silent_s > limits.start_timeout:
                return f"had no first step within {limits.start_timeout:g} s (start_timeout)"
            return None
        median_s = statistics.median(self._steps) if self._steps else 0.0
        idle = cpu_s - self._cpu_s < 0.01 * silent_s
        limit_s = max(limits.idle_timeout, IDLE_STEPS * median_s)
        if idle and silent_s > limit_s:
            return f"finished nothing and used no CPU time for {limit_s:.3g} s (idle_timeout)"
        limit_s = max(limits.busy_timeout, BUSY_STEPS * median_s)
        if silent_s > limit_s:
            return f"finished nothing for {limit_s:.3g} s (busy_timeout)"
        return None


def process_state(process_id: int) -> tuple[str, float]:
    """The kernel's letter for what a process does, and the CPU time it has used; an ended one is Z."""
    try:
        text = Path(f"/proc/{process_id}/stat").read_text()
    except OSError:
        return "Z", 0.0
    words = text[text.rindex(")") + 2 :].split()
    ticks = int(words[11]) + int(words[12])
    return words[0], ticks / 100.0
