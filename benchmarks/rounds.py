"""Interleaved rounds: everything that is compared runs in each round, so a slow minute is slow for all."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

FEWEST, MOST = 3, 7


@dataclass(frozen=True)
class Spread:
    """The median with the least and the greatest, since a median of a few rounds alone says too little."""

    median: float
    least: float
    greatest: float

    @staticmethod
    def of(values: Sequence[float]) -> Spread:
        return Spread(median(values), min(values), max(values))

    def text(self, digits: int = 2, unit: str = "") -> str:
        return f"{self.median:.{digits}f}{unit} ({self.least:.{digits}f}–{self.greatest:.{digits}f})"


def how_many(asked: int | None, quick: bool, one_round_s: float, budget_s: float) -> int:
    """As many rounds as asked for; otherwise what fits, but never too few for a median."""
    if asked is not None:
        return asked
    return 2 if quick else max(FEWEST, min(MOST, int(budget_s / max(one_round_s, 1e-9))))


def interleave(measures: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Each measure once a round; every round begins with another one."""
    names = list(measures)
    found: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            gc.collect()  # nobody pays for what another left behind
            found[name].append(measures[name]())
    return found


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """Round by round, so that drift of the machine between rounds cancels."""
    return [a / b for a, b in zip(above, below, strict=True)]
