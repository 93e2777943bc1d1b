"""When an actor that runs counts as hung: one that does not answer, or that finishes nothing for very long.

Workers answer in a thread of their own while they compute, so a slow batch is not a hang.
"""

from __future__ import annotations

from paceline.training.settings import DriverSettings

ASK_EVERY_S = 2.0
IDLE_SHARE = 0.01
"""Of a core: less CPU time than that counts as none."""


class Heartbeat:
    """What is known of one actor. The clock is the caller's, for tests."""

    def __init__(self, now_s: float) -> None:
        self.asked_s: float | None = None
        self.answered_s = now_s
        self._steps = -1
        self._since_s, self._cpu_at_step_s, self._cpu_s = now_s, 0.0, 0.0

    def should_ask(self, now_s: float) -> bool:
        return self.asked_s is None and now_s - self.answered_s >= ASK_EVERY_S

    def asked(self, now_s: float) -> None:
        self.asked_s = now_s

    def answered(self, now_s: float, cpu_s: float, steps: int) -> None:
        """The actor answered: its CPU time and its finished steps so far."""
        self.asked_s, self.answered_s, self._cpu_s = None, now_s, cpu_s
        if steps != self._steps:
            self._steps, self._since_s, self._cpu_at_step_s = steps, now_s, cpu_s

    def verdict(self, now_s: float, limits: DriverSettings, *, computing: bool) -> str | None:
        """Why it counts as hung, if it does; `computing`: it has a task."""
        if self.asked_s is not None and now_s - self.asked_s > limits.stopped_timeout:
            return f"did not answer for {limits.stopped_timeout:g} s (stopped_timeout)"
        if not computing:
            self._since_s, self._cpu_at_step_s = now_s, self._cpu_s
            return None
        lasted_s = self.answered_s - self._since_s
        idle = self._cpu_s - self._cpu_at_step_s < IDLE_SHARE * lasted_s
        if idle and lasted_s > limits.idle_timeout:
            return f"finished nothing and used no CPU time for {limits.idle_timeout:g} s (idle_timeout)"
        if lasted_s > limits.busy_timeout:
            return f"finished nothing for {limits.busy_timeout:g} s (busy_timeout)"
        return None
