"""When a quarter, half, three quarters and all of a run's iterations were done, in seconds of training."""

from __future__ import annotations

from dataclasses import dataclass, field

SHARES = (0.25, 0.5, 0.75, 1.0)


@dataclass
class Quarters:
    planned: int = 0
    """Iterations of the whole run, or of what was left of it."""
    done: int = 0
    training_s: float = 0.0
    reached_s: dict[float, float] = field(default_factory=dict)
    """Seconds of training by share; shares that were not reached are missing."""

    def add(self, count: int, seconds: float) -> None:
        """`count` more iterations, equally long."""
        for share in SHARES:
            wanted = share * self.planned
            if self.done < wanted <= self.done + count:
                self.reached_s[share] = self.training_s + seconds * (wanted - self.done) / count
        self.done += count
        self.training_s += seconds
