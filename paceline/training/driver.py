"""What every driver of a distributed run is told, and what it does for the run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor

from paceline.data.dataset import Dataset
from paceline.step.choose import StepChoice
from paceline.step.tally import Score
from paceline.strategy.distribution import Distribution
from paceline.strategy.engine import check_policy
from paceline.strategy.event_record import EventRecord
from paceline.strategy.learner import Learner
from paceline.strategy.server_optimizer import check_optimizer
from paceline.strategy.strategy import Strategy
from paceline.testing.faults import Fault
from paceline.trace import Recorder, Span
from paceline.training.checkpoint import Checkpoint
from paceline.training.evaluate import Evaluator
from paceline.training.limits import check_workers
from paceline.training.run import Conditions, Run
from paceline.training.validation_interval import parse_interval
from paceline.workload import Workload

if TYPE_CHECKING:
    from paceline.training.distributed_run import DistributedRun

CHECKPOINT_EVERY_S = 20.0


@dataclass(frozen=True)
class DistributedOptions:
    """What every driver is told, besides the workload."""

    strategy: Strategy
    workers: int
    cache: Path | None = None
    on_bad_gradient: str = "stop"
    record_events: bool = False
    checkpoint_every_s: float = CHECKPOINT_EVERY_S
    validate_every: str = "1epoch"
    faults: tuple[Fault, ...] = ()

    def check(self, driver: str) -> None:
        """Says what is wrong before anything is loaded."""
        if isinstance(self.workers, int):
            check_workers(self.workers, driver)
        check_policy(self.on_bad_gradient)
        check_optimizer(self.strategy.server_optimizer)
        parse_interval(self.validate_every)
        self.strategy.check(self.workers)


@dataclass(frozen=True, eq=False)
class Snapshot:
    """One version of everything that continuing needs: plain positions and tensors."""

    version: int
    epochs_done: int
    parameters: Tensor
    """Flat, with the buffers."""
    state: dict[str, Any] = field(default_factory=dict)
    score: Score = field(default_factory=Score)
    """Of the epoch under way."""


class Driver(Protocol):
    """What is different between processes of this machine and a simulated cluster."""

    learner: Learner
    evaluator: Evaluator
    conditions: Conditions
    step: StepChoice
    data: str
    notes: list[str]
    resumable: bool

    def run(self, run: DistributedRun) -> None:
        """Trains until every epoch is done, and tells `run` what happens."""
        ...

    def distribution(self) -> Distribution: ...

    def trace(self) -> list[Span]: ...

    def timing(self) -> tuple[float, float]:
        """Seconds of training, and samples/s."""
        ...

    def snapshot(self) -> Snapshot: ...

    def report_epochs(self, run: DistributedRun, count: int) -> None:
        """Waits until the first `count` epochs are validated and part of the record."""
        ...

    def restore(self, checkpoint: Checkpoint, before: Run, place: str) -> None: ...

    def events(self) -> EventRecord | None: ...

    def close(self) -> None: ...


MakeDriver = Callable[[Workload, Dataset, DistributedOptions, Recorder], Driver]
