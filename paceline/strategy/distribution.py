"""The part of a run's record that says how it was distributed: workers, waiting, staleness, what became of payloads."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from paceline.strategy.ledger import LedgerSummary
from paceline.strategy.strategy import Strategy


@dataclass(frozen=True)
class WorkerRecord:
    """What one worker (of a group, one tower) did. Loss and accuracy are those of its steps as they were taken."""

    worker: int
    batches: int = 0
    samples: int = 0
    loss: float = math.nan
    accuracy: float = math.nan
    computing_s: float = 0.0
    communicating_s: float = 0.0
    """Fetching and pushing, where it did not overlap with computing."""
    waiting_s: float = 0.0
    """For others, for the server, for something to do."""
    lives: int = 1
    """How often it was started."""
    accuracies: tuple[float, ...] = ()
    """Of its steps, epoch by epoch."""


@dataclass(frozen=True)
class Fault:
    """Something that went wrong and was dealt with."""

    at_s: float
    what: str
    """died, hung, left, refused, server died, shard died, …"""
    worker: int | None = None
    step: int | None = None
    """The number of the worker's task, where it is about one."""
    note: str = ""


@dataclass(frozen=True)
class Point:
    """Where a run stood at the end of an epoch: convergence against seconds and against updates."""

    epoch: int
    """Counted from 1."""
    seconds: float
    """On the driver's clock."""
    updates: int
    train_loss: float = math.nan
    test_loss: float = math.nan
    test_accuracy: float = math.nan


@dataclass(frozen=True)
class Distribution:
    strategy: Strategy
    workers: int
    driver: str
    """local or virtual."""
    seconds: float = 0.0
    """On the driver's own clock: the wall's, or virtual ones."""
    steps: int = 0
    updates: int = 0
    server_s: float = 0.0
    """The server was busy with updates for so long."""
    ledger: LedgerSummary = field(default_factory=LedgerSummary)
    by_worker: tuple[WorkerRecord, ...] = ()
    faults: tuple[Fault, ...] = ()
    """The first of them; `fault_count` counts all."""
    fault_count: int = 0
    points: tuple[Point, ...] = ()
    shards: int = 1
    """Processes that make an update together, each its piece of it."""
    collective: str = "shared"
    """How a group's payloads were added up: from shared memory, or by its members with nccl or gloo."""
    sums: int = 0
    """Rounds that were added up by their members."""
    sums_given_up: int = 0
    """Those that were to be, until a member was gone or could not; they were added up from shared memory."""

    @property
    def steps_per_s(self) -> float:
        return self.steps / self.seconds if self.seconds > 0 else math.nan

    @property
    def updates_per_s(self) -> float:
        return self.updates / self.seconds if self.seconds > 0 else math.nan

    @property
    def waiting_share(self) -> float:
        """Of the time of all workers, how much they waited."""
        waiting = sum(w.waiting_s for w in self.by_worker)
        all_s = waiting + sum(w.computing_s + w.communicating_s for w in self.by_worker)
        return waiting / all_s if all_s > 0 else math.nan
