"""When a silent process counts as hung: a slow batch is not a hang.

A process is silent from its last heartbeat, which it gives after every step and while it waits for something.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, fields
from pathlib import Path

from paceline.errors import StrategyError
from paceline.training.settings import DriverSettings

REMEMBERED = 64
"""Steps whose durations the median is of."""


@dataclass(frozen=True)
class HangLimits:
    """Seconds of silence after which a process is ended and replaced."""

    stopped_s: float = DriverSettings.stopped_timeout
    """A process that was stopped by a signal."""
    idle_s: float = DriverSettings.idle_timeout
    """One that uses no CPU time; or `idle_steps` times its median step, if that is longer."""
    idle_steps: float = 10.0
    busy_s: float = DriverSettings.busy_timeout
    """One that uses CPU time; or `busy_steps` times its median step, if that is longer."""
    busy_steps: float = 50.0
    start_s: float = DriverSettings.start_timeout
    """Any process before its first step is finished, which may include compiling."""

    @staticmethod
    def of(settings: DriverSettings) -> HangLimits:
        return HangLimits(
            settings.stopped_timeout,
            settings.idle_timeout,
            busy_s=settings.busy_timeout,
            start_s=settings.start_timeout,
        )

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0 or math.isnan(value):
                option = field.name.removesuffix("_s").replace("_", "-") + "-timeout" * field.name.endswith("_s")
                raise StrategyError(f"{option}={value!r} should be a number above 0")


class Silence:
    """How long one process has been silent, and what it did meanwhile. The clock is the caller's, for tests."""

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

    def verdict(self, now_s: float, limits: HangLimits, *, working: bool) -> str | None:
        """Why it counts as hung, if it does."""
        state, cpu_s = process_state(self.process_id)
        self._stopped_since_s = (self._stopped_since_s or now_s) if state == "T" else None
        if self._stopped_since_s is not None and now_s - self._stopped_since_s > limits.stopped_s:
            return f"was stopped for more than {limits.stopped_s:g} s (--stopped-timeout)"
        silent_s = now_s - self.beat_s
        if self._cpu_s is None:
            self._cpu_s = cpu_s
        if not working:
            if silent_s > limits.start_s:
                return f"had no first step within {limits.start_s:g} s (--start-timeout)"
            return None
        median_s = statistics.median(self._steps) if self._steps else 0.0
        idle = cpu_s - self._cpu_s < 0.01 * silent_s
        limit_s = max(limits.idle_s, limits.idle_steps * median_s)
        if idle and silent_s > limit_s:
            return f"finished nothing and used no CPU time for {limit_s:.3g} s (--idle-timeout)"
        limit_s = max(limits.busy_s, limits.busy_steps * median_s)
        if silent_s > limit_s:
            return f"finished nothing for {limit_s:.3g} s (--busy-timeout)"
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
