"""The record of a training run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from paceline.notebook import NotebookRecord
from paceline.step.make import StepChoice
from paceline.step.tally import Score
from paceline.strategy.distribution import Distribution
from paceline.trace import Trace
from paceline.training.division import Division
from paceline.workload import Workload


@dataclass(frozen=True)
class Epoch:
    """One pass over the training data. Train figures are those of the steps as they were taken."""

    epoch: int
    loss: float
    train_accuracy: float
    train_top_accuracy: float
    test_loss: float
    test_accuracy: float
    test_top_accuracy: float
    wall_s: float
    samples_per_s: float
    test_metric: float = math.nan
    """The metric of the workload or of its network, if there is one."""
    unscored: int = 0
    """Samples that are not in the train figures: a worker died before it had reported them, or the run was resumed."""

    @staticmethod
    def of(epoch: int, train: Score, test: Score, wall_s: float, samples_per_s: float) -> Epoch:
        """The epoch with this index, counted from 0."""
        return Epoch(
            epoch + 1, train.loss, train.accuracy, train.top_accuracy, test.loss, test.accuracy, test.top_accuracy,
            wall_s, samples_per_s, test.metric,
        )  # fmt: skip


@dataclass(frozen=True)
class ValidationPoint:
    """A validation, at the end of an epoch or between: convergence against seconds and against updates."""

    epoch: float
    """Passes over the data so far; whole at the end of an epoch."""
    seconds: float
    """Seconds of training by then, on the driver's clock."""
    updates: int
    train_loss: float = math.nan
    test_loss: float = math.nan
    test_accuracy: float = math.nan
    test_metric: float = math.nan


@dataclass(frozen=True)
class Conditions:
    """The machine that the figures were measured on."""

    device: str
    device_name: str
    threads: int
    cores: int
    precision: str
    python: str
    torch: str
    paceline: str
    platform: str
    busy: str = ""
    """What other work, or a drifting clock, made the times of the run longer; empty if nothing did."""
    made_in: str = ""
    """The current directory when the run began: its own code lies there."""


@dataclass(frozen=True, repr=False)
class Run(NotebookRecord):
    """A training run: workload, settings, machine and results; the result of `paceline.train`."""

    workload: Workload
    conditions: Conditions
    step: StepChoice
    parameters: int
    data: str
    """How the batches reached the device."""
    status: str = "running"
    """running, finished, interrupted, diverged or failed."""
    error: str = ""
    """What ended a run that is interrupted, diverged or failed, in one line."""
    warnings: tuple[str, ...] = ()
    """What is wrong with the result, and the likely reason; see `paceline.training.outcome`."""
    wall_s: float = 0.0
    """Total time, with validation and checkpoints, over all resumptions."""
    train_s: float = 0.0
    samples_per_s: float = math.nan
    """Training samples/s after the warm-up, without validation and checkpoints."""
    updates: int = 0
    """With those that loss scaling skipped."""
    skipped_updates: int = 0
    """Those of float16 whose gradient was not finite."""
    epochs: tuple[Epoch, ...] = ()
    points: tuple[ValidationPoint, ...] = ()
    test_accuracy: float = math.nan
    test_top_accuracy: float = math.nan
    test_loss: float = math.nan
    test_metric: float = math.nan
    """The metric of the workload or of its network, if there is one."""
    metric: str = ""
    """What it is called."""
    classes: int = 0
    """Classes of the data; 0 where nothing is classified."""
    chance_accuracy: float = 0.0
    """Test accuracy of always answering the most frequent class; 0 where nothing is classified."""
    has_figure: bool = False
    """Whether its network has a figure of what it learned."""
    stages: tuple[int, ...] = ()
    """Epochs from which other phases are trained than before: their training losses are of another kind."""
    resumed: int = 0
    placement: dict[str, int] = field(default_factory=dict)
    """Operations of one step by device, if requested."""
    directory: str = field(default="", compare=False)
    """Where the run is saved; empty if it is not."""
    distribution: Distribution | None = None
    """Workers, waiting, staleness and faults, when there was more than one process."""
    division: Division | None = None
    """How one network was divided among processes, if it was."""
    trace: Trace = field(default_factory=Trace)

    @property
    def is_simulated(self) -> bool:
        """Whether its times are those of a simulated cluster."""
        return self.distribution is not None and self.distribution.driver == "virtual"

    @property
    def timeline(self) -> Trace:
        """The spans that share one clock: for a simulated run, only the simulated ones."""
        spans = (span for span in self.trace.spans if span.who != "main")  # main is timed by the real clock
        return Trace(tuple(spans)) if self.is_simulated else self.trace

    @property
    def shown_top(self) -> int:
        """The n of the top-n accuracy; 0 if it says nothing, because there are no more than n classes."""
        return 0 if 0 < self.classes <= self.workload.top else self.workload.top

    def facts(self) -> dict[str, Any]:
        strategy = {"strategy": self.distribution.strategy.name} if self.distribution is not None else {}
        workers = {"workers": self.distribution.workers} if self.distribution is not None else {}
        return {
            "network": self.workload.network, "data": self.workload.data, **strategy, **workers, "status": self.status,
            "test accuracy": self.test_accuracy, "test loss": self.test_loss,
            **({f"test {self.metric}": self.test_metric} if self.metric else {}), "updates": self.updates,
            **({"skipped updates": self.skipped_updates} if self.skipped_updates else {}),
            "samples/s": self.samples_per_s, "wall_s": self.wall_s,
        }  # fmt: skip

    def table(self) -> list[dict[str, Any]]:
        """Samples without a score are a column only where a worker's death left some."""
        left_out = () if any(epoch.unscored for epoch in self.epochs) else ("unscored",)
        return [{name: value for name, value in vars(epoch).items() if name not in left_out} for epoch in self.epochs]
