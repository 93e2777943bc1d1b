"""The options of a run, and what its driver does: one process, processes of this machine, or a simulated cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor, nn

from paceline.data.dataset import Dataset
from paceline.step.choose import StepChoice
from paceline.step.tally import Score
from paceline.strategy.distribution import Distribution
from paceline.strategy.event_record import EventRecord
from paceline.strategy.server_optimizer import check_optimizer
from paceline.strategy.strategy import Strategy
from paceline.testing.faults import Fault
from paceline.trace import Recorder, Span
from paceline.training.checkpoint import Checkpoint
from paceline.training.limits import check_workers
from paceline.training.run import Conditions, Run
from paceline.training.settings import DriverSettings
from paceline.workload import Workload

if TYPE_CHECKING:
    from paceline.training.training_run import TrainingRun

CHECKPOINT_EVERY_S = 20.0


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How any run is carried out, besides its workload."""

    cache: Path | None = None
    checkpoint_every_s: float | None = CHECKPOINT_EVERY_S
    """None: there are no checkpoints."""
    settings: DriverSettings = field(default_factory=DriverSettings)


@dataclass(frozen=True, kw_only=True)
class DistributedOptions(RunOptions):
    strategy: Strategy
    workers: int
    faults: tuple[Fault, ...] = ()

    def check(self, driver: str) -> None:
        """Raises what is wrong before anything is loaded."""
        if isinstance(self.workers, int):
            check_workers(self.workers, driver)
        check_optimizer(self.strategy.server_optimizer)
        self.strategy.check(self.workers)


@dataclass(frozen=True, eq=False)
class Snapshot:
    """One version of everything that resuming needs: plain positions and tensors."""

    updates: int
    epochs_done: int
    parameters: dict[str, Tensor]
    """The network's state dict."""
    state: dict[str, Any] = field(default_factory=dict)
    score: Score = field(default_factory=Score)
    """Of the epoch under way."""
    next_step: int = 0
    """In the epoch under way, where that is done step by step."""


class Driver(Protocol):
    network: nn.Module
    conditions: Conditions
    step: StepChoice
    data: str
    notes: list[str]
    placement: dict[str, int]
    resumable: bool

    def run(self, run: TrainingRun) -> None:
        """Trains until every epoch is done, and reports to `run` what happens."""
        ...

    @property
    def updates(self) -> int: ...

    def where(self) -> str:
        """How far the training is, for a message: `step 12`."""
        ...

    def timing(self) -> tuple[float, float]:
        """Seconds of training, and samples/s."""
        ...

    def distribution(self) -> Distribution | None:
        """Workers, waiting and staleness so far; None for one process."""
        ...

    def trace(self) -> list[Span]: ...

    def snapshot(self) -> Snapshot: ...

    def report_epochs(self, run: TrainingRun, count: int) -> None:
        """Waits until the first `count` epochs are validated and part of the record."""
        ...

    def restore(self, checkpoint: Checkpoint, before: Run, place: str) -> None: ...

    def events(self) -> EventRecord | None: ...

    def close(self) -> None: ...


MakeDriver = Callable[[Workload, Dataset, Recorder], Driver]
