"""The order of what happened in a run, exactly as much of it as computing the same parameters again needs.

Which task computed on which versions, and which payloads made which update. Who waited and for how long is not in it.
"""

from __future__ import annotations

from dataclasses import dataclass

from paceline.strategy.instructions import Apply, Compute, Contribution
from paceline.strategy.strategy import Strategy
from paceline.workload import Workload

EVENTS = "events.json"
"""Its file in the directory of a run."""


@dataclass(frozen=True)
class TaskRecord:
    """A task that was finished, whatever became of its payload: it changed what its worker keeps."""

    worker: int
    sequence: int
    life: int
    """Counts the worker's starts; a new life begins with nothing kept."""
    epoch: int
    batches: tuple[int, ...]
    fetches: tuple[int, ...]
    versions: tuple[int, ...]
    """What each fetch brought; the look of elastic averaging at the centre is one more, at the end."""

    @property
    def task(self) -> Compute:
        return Compute(self.worker, self.sequence, self.epoch, self.batches, self.fetches, None)


@dataclass(frozen=True)
class GivenRecord:
    group: int
    payloads: tuple[tuple[int, int], ...]
    """(worker, sequence)."""
    staleness: int


@dataclass(frozen=True)
class UpdateRecord:
    update: int
    epoch: int
    closed: int
    given: tuple[GivenRecord, ...]

    @property
    def order(self) -> Apply:
        contributions = tuple(Contribution(g.group, g.payloads, g.staleness) for g in self.given)
        return Apply(self.update, contributions, self.epoch, self.closed)

    @staticmethod
    def of(order: Apply) -> UpdateRecord:
        given = tuple(GivenRecord(c.group, c.payloads, c.staleness) for c in order.contributions)
        return UpdateRecord(order.update, order.epoch, order.closed, given)


@dataclass(frozen=True)
class EventRecord:
    """Updates in their order; tasks in any, those of one worker in theirs."""

    workload: Workload
    strategy: Strategy
    workers: int
    tasks: tuple[TaskRecord, ...]
    updates: tuple[UpdateRecord, ...]
