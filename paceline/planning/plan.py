"""The record of a plan: what was looked at, what is worth having, what was picked, and why."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from paceline.cost.prediction import Prediction
from paceline.notebook import NotebookRecord
from paceline.planning.candidate import Candidate
from paceline.planning.wish import Wish
from paceline.workload import Workload


@dataclass(frozen=True)
class Learned:
    """How long a way of training takes to an accuracy, from training a sample of the data in virtual time."""

    strategy: str
    workers: int
    batch: int
    status: str
    """reached, not reached or diverged."""
    epochs: float
    """Of all data, from as many samples seen; NaN if it was not reached."""
    accuracy: float
    """Of the test, where it was reached, or the best there was."""
    passes: int
    """Over the sample."""


@dataclass(frozen=True)
class Alternative:
    """A candidate that was simulated; one worker alone takes what was predicted."""

    candidate: Candidate
    machines: int
    epochs: float
    time_s: float
    """All epochs."""
    low_s: float
    """With `high_s` the interval that holds the time in nine cases of ten, as far as computing is predicted."""
    high_s: float
    money: float
    """In the plan's currency."""
    under_way: float
    """Samples computed without knowing of each other, in batches of the workload; the fewer, the more it learns as
    the workload does in one process."""
    iteration_s: float
    """Of a worker alone."""
    step_s: float
    """Of a worker, with all exchange and waiting."""
    epoch_s: float
    samples_per_s: float
    efficiency: float
    waiting_share: float
    communication_share: float
    server_share: float
    staleness: float
    bound: str
    """compute, network, server or straggling: what is busy all the time, else what most of a step goes to."""
    accuracy: float = math.nan
    """Seen when training a sample; NaN if nothing was trained."""

    def __str__(self) -> str:
        server = " (one more for the server)" if self.machines > self.candidate.machines else ""
        return f"{self.candidate}{server}"


@dataclass(frozen=True)
class Plan(NotebookRecord):
    workload: Workload
    cluster: str
    wish: Wish
    met: bool
    """Whether the pick keeps the deadline and the budget that were asked for."""
    pick: Alternative
    reasons: tuple[str, ...]
    front: tuple[Alternative, ...]
    """What no other betters in time, money and samples under way together; the fastest first."""
    simulated: tuple[Alternative, ...]
    """All whose time is known. How many of them took a simulation is among the `conditions`."""
    candidates: int
    """How many there were: those simulated and those that bounds ruled out."""
    excluded: dict[str, int]
    """By reason, how many more were never proposed."""
    predictions: int
    currency: str
    prediction: Prediction
    """Of the pick's device, batch and precision."""
    learned: tuple[Learned, ...] = ()
    conditions: dict[str, str] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        return {
            "network": self.workload.network, "cluster": self.cluster, "candidates": self.candidates, "met": self.met,
            "pick": str(self.pick), "time_s": self.pick.time_s, self.currency: self.pick.money,
        }  # fmt: skip

    def table(self) -> list[dict[str, Any]]:
        """The alternatives that no other betters, the fastest first."""
        return [
            {
                "picked": one == self.pick, "machines": one.machines, "machine": one.candidate.machine,
                "workers": one.candidate.workers, "strategy": one.candidate.strategy.name,
                "batch": one.candidate.batch, "precision": one.candidate.precision, "time_s": one.time_s,
                "low_s": one.low_s, "high_s": one.high_s, self.currency: one.money, "bound": one.bound,
            }
            for one in self.front
        ]  # fmt: skip
