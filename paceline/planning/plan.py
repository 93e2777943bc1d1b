"""The record of a plan: the alternatives, the Pareto front, the pick, and the reasons for it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from paceline.cluster import Machine
from paceline.cost.prediction import Prediction
from paceline.notebook import NotebookRecord
from paceline.planning.candidate import Candidate
from paceline.planning.objective import Objective
from paceline.simulation.divided_prediction import DividedPrediction
from paceline.simulation.pipeline_prediction import PipelinePrediction
from paceline.workload import Workload


@dataclass(frozen=True)
class Learned:
    """The epochs a training setup needs to reach an accuracy, from training on a subset in virtual time."""

    strategy: str
    workers: int
    batch: int
    status: str
    """reached, not reached or diverged."""
    epochs: float
    """Epochs over all data with the same number of samples seen; NaN if the accuracy was not reached."""
    accuracy: float
    """Test accuracy when the target was reached, or the best one."""
    passes: int
    """Passes over the subset."""


@dataclass(frozen=True)
class Alternative:
    """A simulated candidate; for a single worker the prediction is used."""

    candidate: Candidate
    machines: int
    epochs: float
    time_s: float
    """Time of all epochs."""
    low_s: float
    """Lower end of the 90 % interval of `time_s`, from the uncertainty of compute times."""
    high_s: float
    money: float
    """In the plan's currency."""
    in_flight: float
    """Samples in flight, in batches of the workload; the fewer, the closer convergence is to that of one process."""
    iteration_s: float
    """Time of an iteration on one worker without exchange."""
    step_s: float
    """Time of a worker's step, including exchange and waiting."""
    epoch_s: float
    samples_per_s: float
    efficiency: float
    waiting_share: float
    communication_share: float
    server_share: float
    staleness: float
    bound: str
    """The bottleneck: compute, network, server or straggling."""
    accuracy: float = math.nan
    """Accuracy on the subset; NaN if nothing was trained."""

    @property
    def computing_share(self) -> float:
        return max(0.0, 1 - self.waiting_share - self.communication_share)

    @property
    def method(self) -> str | None:
        """The division of the network, or the strategy; None for a single worker."""
        if self.candidate.is_divided:
            return self.candidate.division
        return self.candidate.strategy.name if self.candidate.workers > 1 else None

    def __str__(self) -> str:
        server = " (one more for the server)" if self.machines > self.candidate.machines else ""
        return f"{self.candidate}{server}"


@dataclass(frozen=True, repr=False)
class Plan(NotebookRecord):
    """The recommended configuration, its reasons and the alternatives: the result of `paceline.plan`."""

    workload: Workload
    cluster: str
    objective: Objective
    met: bool
    """Whether the pick meets the deadline and the budget."""
    pick: Alternative
    machine: Machine
    """The machine of the pick, with its devices and prices as they were when planning."""
    reasons: tuple[str, ...]
    front: tuple[Alternative, ...]
    """The Pareto front of time, money and samples in flight; the fastest first."""
    simulated: tuple[Alternative, ...]
    """All alternatives with a known time. `conditions` has the number of simulations."""
    candidates: int
    """Number of candidates: simulated ones and those ruled out by bounds."""
    excluded: dict[str, int]
    """Number of candidates that were excluded, by reason."""
    predictions: int
    currency: str
    prediction: Prediction
    """The prediction for the pick's device, batch size and precision."""
    learned: tuple[Learned, ...] = ()
    pipeline: PipelinePrediction | None = None
    """The stages of the pick, if it is a pipeline."""
    divided: DividedPrediction | None = None
    """The shares of the pick, if its layers are divided by feature or its parameters are sharded."""
    conditions: dict[str, str] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        return {
            "network": self.workload.network, "cluster": self.cluster, "candidates": self.candidates, "met": self.met,
            "pick": str(self.pick), "time_s": self.pick.time_s, self.currency: self.pick.money,
        }  # fmt: skip

    @property
    def shown(self) -> tuple[Alternative, ...]:
        """The alternatives that no other betters, and the pick, the fastest first."""
        return tuple(sorted(dict.fromkeys((*self.front, self.pick)), key=lambda one: (one.time_s, one.money)))

    def table(self) -> list[dict[str, Any]]:
        """The Pareto front and the pick, the fastest first."""
        return [
            {
                "picked": one == self.pick, "machines": one.machines, "machine": one.candidate.machine,
                "workers": one.candidate.workers, "strategy": one.candidate.strategy.name,
                "batch": one.candidate.batch, "precision": one.candidate.precision, "time_s": one.time_s,
                "low_s": one.low_s, "high_s": one.high_s, self.currency: one.money, "bound": one.bound,
            }
            for one in self.shown
        ]  # fmt: skip
