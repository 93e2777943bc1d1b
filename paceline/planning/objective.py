"""The objective of a plan: how much training, by when and for how much; parsed, and as a value to minimise."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paceline.errors import InputError
from paceline.settings.text import MAX_TIME_S, read_time
from paceline.workload import MOST_EPOCHS

Numbers = npt.NDArray[np.float64]

LEAST_EPOCHS = 1e-6
MOST_MONEY = 1e15
TIE_BREAK = 1e-9
"""Money per second, so that of machines without a price the faster one is better."""


@dataclass(frozen=True)
class Objective:
    epochs: float | None = None
    """None: as many as needed for the target accuracy."""
    target_accuracy: float | None = None
    deadline_s: float | None = None
    budget: float | None = None
    spot: bool = False

    def __post_init__(self) -> None:
        if (self.epochs is None) == (self.target_accuracy is None):
            raise InputError("`epochs` and `target_accuracy` cannot be combined: give one of them")
        if self.epochs is not None and not LEAST_EPOCHS <= self.epochs <= MOST_EPOCHS:
            raise InputError(f"epochs={self.epochs:g} should be from {LEAST_EPOCHS:g} to {MOST_EPOCHS:,}")
        if self.target_accuracy is not None and not 0 < self.target_accuracy <= 1:
            raise InputError(
                f"`target_accuracy={self.target_accuracy:g}` should be above 0 and at most 1, e.g. 0.97 or '97%'"
            )
        if self.deadline_s is not None and not 0 < self.deadline_s <= MAX_TIME_S:
            raise InputError(f"deadline={self.deadline_s:g} s should be above 0, and less than a hundred years")
        if self.budget is not None and not (0 <= self.budget <= MOST_MONEY):
            raise InputError(f"budget={self.budget:g} should be a number from 0 to {MOST_MONEY:g}")

        for key in ("epochs", "target_accuracy", "deadline_s", "budget"):
            if getattr(self, key) is not None:
                object.__setattr__(self, key, float(getattr(self, key)))

    def values(self, time_s: Numbers, money: Numbers) -> Numbers:
        """The value to minimise; infinite where the objective is not met. It is monotone in time and money.

        With a deadline it is money, with a budget time, with both money. With neither it is their product: at the
        minimum, saving one percent of time costs more than one percent of money, and vice versa.
        """
        kept = np.ones(len(time_s), dtype=bool)
        if self.deadline_s is not None:
            kept &= time_s <= self.deadline_s
        if self.budget is not None:
            kept &= money <= self.budget
        if self.deadline_s is not None:
            counted = money + TIE_BREAK * time_s
        elif self.budget is not None:
            counted = time_s
        else:
            counted = time_s * (money + TIE_BREAK * time_s)
        return np.where(kept, counted, np.inf)

    def distances(self, time_s: Numbers, money: Numbers) -> Numbers:
        """How far a plan misses the objective: the factor by which it is too slow or too expensive."""
        late = time_s / self.deadline_s if self.deadline_s is not None else np.zeros(len(time_s))
        if self.budget is None:
            return late
        return np.maximum(late, money / max(self.budget, 1e-9))

    def keeps(self, time_s: float, money: float) -> bool:
        return bool(np.isfinite(self.values(np.array([time_s]), np.array([money])))[0])


def read_deadline(text: str) -> float:
    return read_time("deadline", text)


def read_accuracy(text: str) -> float:
    """A share, or a percentage: 0.97 and 97% are the same."""
    word = text.strip()
    try:
        value = float(word.removesuffix("%")) / (100 if word.endswith("%") else 1)
    except ValueError:
        value = math.nan
    if not 0 < value <= 1:
        raise InputError(f"`target_accuracy={text!r}` should be above 0 and at most 1, e.g. 0.97 or 97%")
    return value


def read_budget(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (0 <= value <= MOST_MONEY):
        raise InputError(f"`budget={text!r}` should be an amount of money from 0 to {MOST_MONEY:g}, e.g. 500")
    return value
