"""When an actor that runs counts as hung: one that does not answer, or that finishes nothing for very long.

Workers answer in a thread of their own while they compute, so a slow batch is not a hang.
"""

from __future__ import annotations

from paceline.training.hang_detection import StepWatch
from paceline.training.settings import DriverSettings

ASK_EVERY_S = 2.0


class Heartbeat:
    """The last signs of life of one actor. The caller supplies the time, so tests can fake it."""

    def __init__(self, now_s: float) -> None:
        self.asked_s: float | None = None
        self.answered_s = now_s
        self._watch = StepWatch(now_s)
        self._steps, self._cpu_s = -1, 0.0

    def should_ask(self, now_s: float) -> bool:
        return self.asked_s is None and now_s - self.answered_s >= ASK_EVERY_S

    def asked(self, now_s: float) -> None:
        self.asked_s = now_s

    def answered(self, now_s: float, cpu_s: float, steps: int) -> None:
        """Records an answer of the actor: its CPU time and finished steps so far."""
        self.asked_s, self.answered_s, self._cpu_s = None, now_s, cpu_s
        if steps != self._steps:
            self._steps = steps
            self._watch.seen(now_s, steps)

    def verdict(self, now_s: float, limits: DriverSettings, *, computing: bool) -> str | None:
        """The reason why the actor counts as hung, or an empty string; `computing`: it has a task."""
        if self.asked_s is not None and now_s - self.asked_s > limits.stopped_timeout:
            return f"did not answer for {limits.stopped_timeout:g} s (stopped_timeout)"
        if not computing:
            self._watch.seen(now_s, self._steps)
        return self._watch.verdict(max(self.answered_s, self._watch.beat_s), self._cpu_s, limits)
