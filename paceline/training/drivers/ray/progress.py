"""What the launcher knows about a run: speed, losses, waiting, faults, from what the server reports."""

from __future__ import annotations

import time
from dataclasses import replace

from paceline.step.tally import Score
from paceline.strategy.distribution import Distribution, WorkerRecord
from paceline.training.drivers.ray.messages import ServerState, Status, WorkerReport
from paceline.training.drivers.ray.supervisor import Supervisor
from paceline.training.run import Epoch, Run
from paceline.training.watcher import Progress, WorkersProgress
from paceline.workload import Workload

SCORES_WITHIN_S = 1.0
RATE_EVERY_S = 0.5


class RayProgress:
    def __init__(self, workload: Workload, described: Distribution, samples: int, batches: int) -> None:
        """`described` says how the run is distributed; `samples` and `batches` are those of an epoch."""
        self.workload, self.before, self.samples, self.batches = workload, described, samples, batches
        self.supervisor: Supervisor | None = None
        self.status = Status("", begun=False)
        self.train_before_s = 0.0
        self.began_s: float | None = None
        self.ended_s: float | None = None
        self.epoch_ends_s: dict[int, float] = {}
        self.scores: dict[int, Score] = {}
        self.first_epoch, self.closed_before = 0, 0
        self._rate_s, self._rate_version, self._rate = 0.0, 0, 0.0

    def continue_from(self, run: Run, state: ServerState) -> None:
        """Adds what was counted before the run was resumed."""
        self.train_before_s = run.train_s
        if run.distribution is not None:
            now = self.before
            self.before = replace(
                run.distribution, driver=now.driver, commits=now.commits, collective=now.collective,
                server_threads=now.server_threads,
            )  # fmt: skip
        self.first_epoch = state.epochs_done

    def update(self, status: Status) -> None:
        now_s = time.monotonic()
        self.status = status
        if status.began_ago_s is not None and self.began_s is None:
            self.began_s = self._rate_s = now_s - status.began_ago_s
            self._rate_version = status.version
        if status.ended_ago_s is not None and self.ended_s is None:
            self.ended_s = now_s - status.ended_ago_s
        for epoch, ago_s in status.epoch_ended_ago_s.items():
            self.epoch_ends_s.setdefault(epoch, now_s - ago_s)
        self.scores.update(status.scores)
        if now_s - self._rate_s >= RATE_EVERY_S:
            self._rate = max(0.0, (status.version - self._rate_version) / (now_s - self._rate_s))
            self._rate_s, self._rate_version = now_s, status.version

    def restored(self, state: ServerState) -> None:
        """The server went back to a checkpoint: what ended since will end again."""
        self.epoch_ends_s = {epoch: s for epoch, s in self.epoch_ends_s.items() if epoch < state.epochs_done}
        self.scores.clear()
        self._rate_version = state.version

    @property
    def train_s(self) -> float:
        return self.train_before_s + self.elapsed_s

    @property
    def elapsed_s(self) -> float:
        return 0.0 if self.began_s is None else (self.ended_s or time.monotonic()) - self.began_s

    @property
    def closed(self) -> int:
        """Batches done so far."""
        return self.status.epochs_done * self.batches + self.status.closed

    @property
    def samples_per_s(self) -> float:
        closed = self.closed - self.first_epoch * self.batches
        return closed * self.samples / self.batches / max(self.elapsed_s, 1e-9)

    def score(self, epoch: int) -> Score:
        return self.scores.get(epoch, Score())

    def is_scored(self, epoch: int) -> bool:
        """Whether the workers have reported all of an epoch's losses, or had the time to."""
        late = time.monotonic() - self.epoch_ends_s.get(epoch, time.monotonic()) > SCORES_WITHIN_S
        return late or self.score(epoch).samples >= self.samples

    def epoch(self, epoch: int, test: Score) -> Epoch:
        start_s = self.epoch_ends_s.get(epoch - 1, self.began_s or 0.0)
        wall_s = max(self.epoch_ends_s[epoch] - start_s, 1e-9)
        return Epoch.of(epoch, self.score(epoch), test, wall_s, self.samples / wall_s)

    def seconds_at_end_of(self, epoch: int) -> float:
        return self.train_before_s + self.epoch_ends_s[epoch] - (self.began_s or 0.0)

    def progress(self) -> Progress:
        status, epochs = self.status, self.workload.epochs
        shown = min(status.epochs_done, epochs - 1)
        closed = status.closed if shown == status.epochs_done else self.batches
        workers = WorkersProgress(status.alive, self.before.workers, self._rate, status.ledger.mean_staleness)
        return Progress(shown, epochs, closed, self.batches, self.score(shown), self.samples_per_s, workers)

    def distribution(self) -> Distribution:
        status, supervisor = self.status, self.supervisor
        by_worker = tuple(self._worker(number) for number in range(self.before.workers))
        faults = (*(supervisor.faults if supervisor is not None else ()), *status.refusals)
        return replace(
            self.before,
            seconds=self.train_s,
            steps=sum(worker.batches for worker in by_worker),
            updates=status.version,
            server_s=status.updating_s,
            ledger=status.ledger,
            by_worker=by_worker,
            faults=(*self.before.faults, *sorted(faults, key=lambda fault: fault.at_s)),
            fault_count=self.before.fault_count + len(status.refusals) + (supervisor.fault_count if supervisor else 0),
        )

    def _worker(self, number: int) -> WorkerRecord:
        status = self.status
        before = self.before.by_worker[number] if self.before.by_worker else WorkerRecord(number, starts=0)
        report = status.by_worker[number] if status.by_worker else WorkerReport()
        score = status.totals[number] if status.totals else Score()
        computing_s = max(0.0, report.joined_s - report.waiting_s - report.communicating_s)
        accuracies = status.accuracies[number] if status.accuracies else ()
        return WorkerRecord(
            worker=number,
            batches=before.batches + report.steps,
            samples=score.samples,
            loss=score.loss,
            accuracy=score.accuracy,
            computing_s=before.computing_s + computing_s,
            communicating_s=before.communicating_s + report.communicating_s,
            waiting_s=before.waiting_s + report.waiting_s,
            starts=before.starts + (self.supervisor.workers[number].incarnation if self.supervisor else 0),
            accuracies=(*before.accuracies, *accuracies),
        )
