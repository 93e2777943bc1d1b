"""How long iterations took: of a long run, every second, fourth and so on, and all that were instrumented."""

from __future__ import annotations

MOST = 100_000


class KeptIterations(list[tuple[int, float, bool]]):
    """Number and seconds of an iteration, and whether it was instrumented."""

    every = 1

    @property
    def room(self) -> int:
        """How many of the next iterations may simply be appended."""
        return MOST - len(self) - 1 if self.every == 1 else 0

    def keep(self, number: int, seconds: float, sampled: bool) -> None:
        if sampled or number % self.every == 0:
            self.append((number, seconds, sampled))
        if len(self) >= MOST:
            self.every *= 2
            self[:] = [kept for kept in self if kept[0] % self.every == 0]
