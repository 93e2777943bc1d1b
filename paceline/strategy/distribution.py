"""The part of a run's record that says how it was distributed: workers, waiting, staleness, what became of payloads."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from paceline.strategy.ledger import LedgerSummary
from paceline.strategy.strategy import Strategy

ACTIVITIES = ("computing", "communicating", "waiting")
"""What a worker does."""


@dataclass(frozen=True)
class WorkerRecord:
    """The work of one worker. Loss and accuracy are those of its steps as they were taken."""

    worker: int
    batches: int = 0
    samples: int = 0
    loss: float = math.nan
    accuracy: float = math.nan
    computing_s: float = 0.0
    communicating_s: float = 0.0
    """Fetching and pushing, where it did not overlap with computing."""
    waiting_s: float = 0.0
    """Waiting for other workers, for the server or for a task."""
    starts: int = 1
    """How often it was started."""
    accuracies: tuple[float, ...] = ()
    """The accuracy of its steps in each epoch."""


@dataclass(frozen=True)
class FaultRecord:
    """Something that went wrong and was recovered from."""

    at_s: float
    what: str
    """died, hung, left, refused, server died, …"""
    worker: int | None = None
    step: int | None = None
    """The number of the worker's task, where it is about one."""
    note: str = ""


@dataclass(frozen=True)
class Distribution:
    strategy: Strategy
    workers: int
    driver: str
    """local, ray or virtual."""
    seconds: float = 0.0
    """On the driver's own clock: the wall's, or virtual ones."""
    steps: int = 0
    updates: int = 0
    server_s: float = 0.0
    """Time that the server spent on updates."""
    ledger: LedgerSummary = field(default_factory=LedgerSummary)
    by_worker: tuple[WorkerRecord, ...] = ()
    faults: tuple[FaultRecord, ...] = ()
    """The first of them; `fault_count` counts all."""
    fault_count: int = 0
    server_threads: int = 1
    """Threads that make an update together, each its pieces of it."""
    server_shards: int = 1
    """Servers that share the parameters."""
    collective: str = "shared memory"
    """How a group's payloads are averaged: from shared memory, or by its members with nccl or gloo."""
    commits: str = "server"
    """Whether the server or the workers make updates, and why."""
    nodes: int = 0
    """Nodes that had workers; 0 where the driver has no nodes."""

    @property
    def steps_per_s(self) -> float:
        return self.steps / self.seconds if self.seconds > 0 else math.nan

    @property
    def updates_per_s(self) -> float:
        return self.updates / self.seconds if self.seconds > 0 else math.nan

    @property
    def waiting_share(self) -> float:
        """The share of all workers' time that was spent waiting."""
        all_s = sum(self.spent_s.values())
        return self.spent_s["waiting"] / all_s if all_s > 0 else math.nan

    @property
    def spent_s(self) -> dict[str, float]:
        """Seconds of all workers together, by activity."""
        return {what: sum(getattr(worker, f"{what}_s") for worker in self.by_worker) for what in ACTIVITIES}
