"""How a run with workers is doing: speed, losses, waiting and faults, from what its driver knows."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from paceline.step.tally import Score
from paceline.strategy.distribution import Distribution, FaultRecord, WorkerRecord
from paceline.strategy.ledger import LedgerSummary
from paceline.training.run import Epoch, Run
from paceline.training.watcher import Progress, WorkersProgress
from paceline.workload import Workload

SCORES_WITHIN_S = 30.0
"""Workers report the losses of an epoch this long after its end, however busy the machine is."""
LOST_WITHIN_S = 1.0
"""Where some may have died with a worker, the others are there after this."""
RATE_EVERY_S = 0.5


@dataclass(frozen=True)
class RunState:
    """Where the server and the workers are at the moment."""

    version: int
    epochs_done: int
    closed: int
    """Batches that are done, of the epoch under way."""
    alive: int
    updating_s: float
    """Time that was spent on updates."""
    ledger: LedgerSummary


class RunProgress(ABC):
    """What every driver makes of these; a driver says where they come from."""

    def __init__(
        self, workload: Workload, described: Distribution, samples: int, batches: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        """`described` says how the run is distributed; `samples` and `batches` are those of an epoch."""
        self.workload, self.samples, self.batches, self.clock = workload, samples, batches, clock
        self.before = described
        """The counts of this run before it was resumed."""
        self.train_before_s = 0.0
        self.began_s: float | None = None
        self.ended_s: float | None = None
        self.epoch_ends_s: dict[int, float] = {}
        """When each epoch was done, of those that ended since the run began or was resumed."""
        self.closed_before = 0
        """Batches that were done before it was resumed."""
        self._deaths_by_end: dict[int, int] = {}
        """How many processes had died by the end of each epoch."""
        self._rate_s, self._rate_version, self._rate = 0.0, 0, 0.0

    # What a driver knows

    @abstractmethod
    def standing(self) -> RunState: ...

    @abstractmethod
    def score(self, epoch: int) -> Score:
        """Losses and accuracy of an epoch's steps, as far as workers have reported them."""

    @abstractmethod
    def counted(self, number: int) -> WorkerRecord:
        """What a worker did since the run began or was resumed; its score is that of all it ever did."""

    @abstractmethod
    def faults(self) -> tuple[Sequence[FaultRecord], int]:
        """Since then: the first of them, and the number of all."""

    # What comes of it

    def resume(self, run: Run, closed: int) -> None:
        """Adds what was counted before the run was resumed; how it is distributed now may be new."""
        self.train_before_s, self.closed_before = run.train_s, closed
        if run.distribution is not None:
            now = self.before
            self.before = replace(
                run.distribution, driver=now.driver, commits=now.commits, collective=now.collective,
                server_threads=now.server_threads, server_shards=now.server_shards,
            )  # fmt: skip

    def begin(self, at_s: float, version: int) -> None:
        self.began_s = self._rate_s = at_s
        self._rate_version = version

    def note(self, now_s: float, version: int) -> None:
        """Updates per second of late, and the deaths before the end of each epoch in `epoch_ends_s`."""
        for epoch in self.epoch_ends_s.keys() - self._deaths_by_end.keys():
            self._deaths_by_end[epoch] = self._deaths()
        if now_s - self._rate_s >= RATE_EVERY_S:
            self._rate = max(0.0, (version - self._rate_version) / (now_s - self._rate_s))
            self._rate_s, self._rate_version = now_s, version

    @property
    def train_s(self) -> float:
        return self.train_before_s + self.elapsed_s

    @property
    def elapsed_s(self) -> float:
        return 0.0 if self.began_s is None else (self.ended_s or self.clock()) - self.began_s

    @property
    def samples_per_s(self) -> float:
        return self._samples_per_s(self.standing().ledger)

    def _samples_per_s(self, ledger: LedgerSummary) -> float:
        return (ledger.closed - self.closed_before) * self.samples / self.batches / max(self.elapsed_s, 1e-9)

    @property
    def passes(self) -> float:
        """Passes over the data so far."""
        return self.standing().ledger.closed / self.batches

    def is_scored(self, epoch: int) -> bool:
        """Whether the workers have reported all of an epoch's losses, or had the time to."""
        if self.score(epoch).samples >= self.samples:
            return True
        resumed = self.train_before_s > 0 and epoch == next(iter(self.epoch_ends_s), None)
        lost = resumed or self._deaths() > self._deaths_by_end.get(epoch - 2, 0)  # it opened when that one had ended
        within_s = LOST_WITHIN_S if lost else SCORES_WITHIN_S
        return epoch in self.epoch_ends_s and self.clock() - self.epoch_ends_s[epoch] > within_s

    def _deaths(self) -> int:
        faults, count = self.faults()
        return count - sum(fault.what == "refused" for fault in faults)

    def epoch(self, epoch: int, test: Score) -> Epoch:
        end_s, score = self.epoch_ends_s[epoch], self.score(epoch)
        wall_s = max(end_s - self.epoch_ends_s.get(epoch - 1, self.began_s or end_s), 1e-9)
        done = Epoch.of(epoch, score, test, wall_s, self.samples / wall_s)
        return replace(done, unscored=max(0, self.samples - score.samples))

    def seconds_at_end_of(self, epoch: int) -> float:
        """Seconds of training by the end of an epoch."""
        return self.train_before_s + self.epoch_ends_s[epoch] - (self.began_s or 0.0)

    def progress(self) -> Progress:
        standing, epochs = self.standing(), self.workload.epochs
        ledger, shown = standing.ledger, min(standing.epochs_done, epochs - 1)
        closed = standing.closed if shown == standing.epochs_done else self.batches
        workers = WorkersProgress(
            standing.alive, self.before.workers, self._rate, ledger.mean_staleness, self._by_worker
        )
        return Progress(shown, epochs, closed, self.batches, self.score(shown), self._samples_per_s(ledger), workers)

    def distribution(self) -> Distribution:
        standing, (faults, fault_count) = self.standing(), self.faults()
        by_worker = self._by_worker()
        return replace(
            self.before,
            seconds=self.train_s,
            steps=sum(worker.batches for worker in by_worker),
            updates=standing.version,
            server_s=standing.updating_s,
            ledger=standing.ledger,
            by_worker=by_worker,
            faults=(*self.before.faults, *faults),
            fault_count=self.before.fault_count + fault_count,
        )

    def _by_worker(self) -> tuple[WorkerRecord, ...]:
        return tuple(map(self._worker, range(self.before.workers)))

    def _worker(self, number: int) -> WorkerRecord:
        now = self.counted(number)
        if not self.before.by_worker:
            return now
        before = self.before.by_worker[number]
        return replace(
            now,
            batches=before.batches + now.batches,
            computing_s=before.computing_s + now.computing_s,
            communicating_s=before.communicating_s + now.communicating_s,
            waiting_s=before.waiting_s + now.waiting_s,
            starts=before.starts + now.starts,
            accuracies=(*before.accuracies, *now.accuracies),
        )
