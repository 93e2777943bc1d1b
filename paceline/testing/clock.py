"""A clock for tests: time passes only in `sleep`."""

from __future__ import annotations


class FakeClock:
    """Returns its time in seconds when called; `sleep` advances it at once. For anything that takes a clock."""

    def __init__(self, now_s: float = 0.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        if seconds < 0:
            raise ValueError(f"sleep({seconds:g}): seconds must not be negative")
        self.now_s += seconds
