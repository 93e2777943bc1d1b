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
    """A finished task, whatever became of its payload: it changed what its worker keeps."""

    worker: int
    sequence: int
    incarnation: int
    """Counts the worker's starts; a new process begins with nothing kept."""
    epoch: int
    batches: tuple[int, ...]
    fetches: tuple[int, ...]
    versions: tuple[int, ...]
    """The version that each fetch returned; an exchange that fetches before its push has one more, at the end."""
    fragment: int = 0
    """Which fragment of the parameters its payload is of, where they are exchanged in turn."""
    whole: bool = True
    """Whether its fetch was of all parameters."""

    @staticmethod
    def of(task: Compute, incarnation: int, versions: tuple[int, ...]) -> TaskRecord:
        return TaskRecord(
            task.worker, task.sequence, incarnation, task.epoch, task.batches, task.fetches, versions, task.fragment,
            task.whole,
        )  # fmt: skip

    @property
    def task(self) -> Compute:
        return Compute(
            self.worker, self.sequence, self.epoch, self.batches, self.fetches, fragment=self.fragment, whole=self.whole
        )


@dataclass(frozen=True)
class ContributionRecord:
    group: int
    payloads: tuple[tuple[int, int], ...]
    """(worker, sequence)."""
    staleness: int

    def contribution(self, epoch: int) -> Contribution:
        tasks = tuple(Compute(worker, sequence, epoch, (), ()) for worker, sequence in self.payloads)
        return Contribution(self.group, tasks, self.staleness)


@dataclass(frozen=True)
class UpdateRecord:
    update: int
    epoch: int
    closed: int
    contributions: tuple[ContributionRecord, ...]

    @property
    def order(self) -> Apply:
        return Apply(
            self.update, tuple(c.contribution(self.epoch) for c in self.contributions), self.epoch, self.closed
        )

    @staticmethod
    def of(order: Apply) -> UpdateRecord:
        contributions = tuple(
            ContributionRecord(c.group, tuple((t.worker, t.sequence) for t in c.tasks), c.staleness)
            for c in order.contributions
        )
        return UpdateRecord(order.update, order.epoch, order.closed, contributions)


@dataclass(frozen=True)
class EventRecord:
    """Updates in their order; tasks in any, those of one worker in theirs."""

    workload: Workload
    strategy: Strategy
    workers: int
    tasks: tuple[TaskRecord, ...]
    updates: tuple[UpdateRecord, ...]
