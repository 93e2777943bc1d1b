"""What a run reports while it trains; the command line draws its progress from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from paceline.step.tally import Score
from paceline.strategy.distribution import WorkerRecord
from paceline.training.run import Epoch, Run


@dataclass(frozen=True)
class WorkersProgress:
    """The progress of several workers."""

    alive: int
    workers: int
    updates_per_s: float
    staleness: float
    """On average."""
    records: Callable[[], Sequence[WorkerRecord]] | None = None
    """What every worker has done so far, for whoever wants to look at it."""


@dataclass(frozen=True)
class Progress:
    epoch: int
    epochs: int
    step: int
    steps: int
    score: Score
    samples_per_s: float
    workers: WorkersProgress | None = None


class Watcher(Protocol):
    """What is not overridden is ignored."""

    def begun(self, run: Run, notes: list[str]) -> None:
        return

    def advanced(self, progress: Progress) -> None:
        return

    def finished_epoch(self, epoch: Epoch, run: Run) -> None:
        """`run` is the record so far, with this epoch."""
        return


class Silent(Watcher):
    """Watches nothing."""


class Several:
    """Tells each of several watchers, in turn."""

    def __init__(self, *watchers: Watcher) -> None:
        self.watchers = watchers

    def begun(self, run: Run, notes: list[str]) -> None:
        for watcher in self.watchers:
            watcher.begun(run, notes)

    def advanced(self, progress: Progress) -> None:
        for watcher in self.watchers:
            watcher.advanced(progress)

    def finished_epoch(self, epoch: Epoch, run: Run) -> None:
        for watcher in self.watchers:
            watcher.finished_epoch(epoch, run)
