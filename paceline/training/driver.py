"""The options of a run, and what its driver does: one process, processes of this machine, or a simulated cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, Self

from torch import Tensor, nn

from paceline import data
from paceline.data.dataset import Dataset
from paceline.step.make import StepChoice
from paceline.step.phase import Phase
from paceline.step.tally import Score
from paceline.strategy.distribution import Distribution
from paceline.strategy.event_record import EventRecord
from paceline.strategy.strategy import Strategy
from paceline.testing.faults import Fault
from paceline.trace import Recorder, Span
from paceline.training.checkpoint import Checkpoint
from paceline.training.division import Division
from paceline.training.limits import check_workers
from paceline.training.run import Conditions, Run
from paceline.training.settings import DriverSettings
from paceline.training.watcher import Watcher
from paceline.workload import Workload

if TYPE_CHECKING:
    from paceline.training.training_run import TrainingRun

CHECKPOINT_EVERY_S = 20.0


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How any run is carried out, besides its workload."""

    out: str | Path | None = None
    """A new directory for the record and the checkpoint of a run that is not resumed; None: nothing is written."""
    cache: Path | None = None
    checkpoint_every_s: float | None = CHECKPOINT_EVERY_S
    """None: there are no checkpoints."""
    progress: data.Progress | None = None
    """Follows downloads."""
    watcher: Watcher | None = None
    """Follows the training."""
    settings: DriverSettings = field(default_factory=DriverSettings)

    @classmethod
    def of(cls, given: Mapping[str, Any], **more: Any) -> Self:
        """Of keyword arguments: fields of this record, and settings of a driver."""
        known = {each.name for each in fields(cls)}
        own = {key: value for key, value in given.items() if key in known}
        settings = DriverSettings(**{key: value for key, value in given.items() if key not in known})
        return cls(**own, settings=settings, **more)


@dataclass(frozen=True, kw_only=True)
class DistributedOptions(RunOptions):
    strategy: Strategy
    workers: int
    faults: tuple[Fault, ...] = ()

    def check(self, driver: str) -> None:
        """Raises what is wrong before anything is loaded."""
        self.strategy.check(self.workers)
        check_workers(self.workers, driver)


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
    """What it does not override is that of a driver with one process that is not resumed."""

    network: nn.Module
    phases: Sequence[Phase]
    conditions: Conditions
    step: StepChoice
    data: str
    notes: list[str]
    placement: Mapping[str, int] = MappingProxyType({})
    """Operations of one step by device, if requested."""
    skipped_updates: int = 0
    """Those left out because their gradient was not finite, with loss scaling."""
    resumable: bool = False

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
        return None

    def division(self) -> Division | None:
        """How one network is divided among processes, and their times so far; None where it is not."""
        return None

    def trace(self) -> list[Span]:
        return []

    def snapshot(self) -> Snapshot: ...

    def report_epochs(self, run: TrainingRun, count: int) -> None:
        """Waits until the first `count` epochs are validated and part of the record; most are when they end."""
        return

    def restore(self, checkpoint: Checkpoint, before: Run) -> None:
        """Continues from a checkpoint and the record that was saved with it."""
        return

    def events(self) -> EventRecord | None:
        """What a replay needs, if it was recorded; one process does one thing after another."""
        return None

    def close(self) -> None: ...


MakeDriver = Callable[[Workload, Dataset, Recorder], Driver]
