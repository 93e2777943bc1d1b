"""When a silent process counts as hung: one that is stopped, does not start, or finishes nothing for very long.

A process is silent from its last heartbeat, which it gives after every step and while it waits for something.
"""

from __future__ import annotations

from pathlib import Path

from paceline.training.hang_detection import StepWatch
from paceline.training.settings import DriverSettings


class Silence(StepWatch):
    def __init__(self, process_id: int, started_s: float) -> None:
        super().__init__(started_s)
        self.process_id = process_id
        self._stopped_since_s: float | None = None

    def hung(self, now_s: float, limits: DriverSettings, *, working: bool) -> str | None:
        """The reason why the process counts as hung, or an empty string."""
        state, cpu_s = process_state(self.process_id)
        self._stopped_since_s = (self._stopped_since_s or now_s) if state == "T" else None
        if self._stopped_since_s is not None and now_s - self._stopped_since_s > limits.stopped_timeout:
            return f"was stopped for more than {limits.stopped_timeout:g} s (stopped_timeout)"
        if working:
            return self.verdict(now_s, cpu_s, limits)
        late = now_s - self.beat_s > limits.start_timeout
        return f"had no first step within {limits.start_timeout:g} s (start_timeout)" if late else None


def process_state(process_id: int) -> tuple[str, float]:
    """The kernel's letter for what a process does, and the CPU time it has used; an ended one is Z."""
    try:
        text = Path(f"/proc/{process_id}/stat").read_text()
    except OSError:
        return "Z", 0.0
    words = text[text.rindex(")") + 2 :].split()
    ticks = int(words[11]) + int(words[12])
    return words[0], ticks / 100.0
