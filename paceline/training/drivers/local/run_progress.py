"""What the launcher reads from shared memory about a run: speed, losses, waiting, faults."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from paceline.step.tally import Score
from paceline.strategy.distribution import Distribution, WorkerRecord
from paceline.strategy.strategy import Strategy
from paceline.training.drivers.local import batch_status
from paceline.training.drivers.local.fields import ControlField, SlotField
from paceline.training.drivers.local.position import ledger_of
from paceline.training.drivers.local.shared_memory import REFUSALS_KEPT, SharedMemory
from paceline.training.drivers.local.supervisor import Supervisor
from paceline.training.drivers.local.worker_score import accuracies_of, score_of, total_of
from paceline.training.run import Epoch, Run
from paceline.training.watcher import Progress, WorkersProgress
from paceline.workload import Workload

SCORES_WITHIN_S = 1.0
RATE_EVERY_S = 0.5


class RunProgress:
    def __init__(
        self, memory: SharedMemory, supervisor: Supervisor, workload: Workload, described: Distribution, samples: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        """`described` says how the run is distributed; what it counts is added to it."""
        self.memory, self.supervisor, self.workload, self.clock = memory, supervisor, workload, clock
        self.before = described
        """The counts of this run before it was resumed."""
        strategy: Strategy = described.strategy
        self.samples = samples * (memory.sizes.workers if strategy.full_pass_per_worker else 1)
        """Samples per epoch."""
        self.train_before_s = 0.0
        self.began_s: float | None = None
        self.ended_s: float | None = None
        self.epoch_ends_s: list[float] = []
        """When each epoch of this process was done; those seen to end together share the time they took."""
        self.first_epoch, self.closed_before = 0, 0
        self.recorded = 0
        """Epochs that have become part of the record."""
        self.score_before = Score()
        """The first epoch's score before the run was resumed in the middle of it."""
        self.by_worker_before = [Score()] * memory.sizes.workers
        """Each worker's score before the run was resumed."""
        self.refusals = 0
        self._rate_s, self._rate_version, self._rate = 0.0, 0, 0.0

    def continue_from(self, run: Run, score: Score, by_worker: list[Score]) -> None:
        """Adds what was counted before the run was resumed: in the epoch under way, and by each worker in total."""
        self.train_before_s = run.train_s
        if run.distribution is not None:
            self.before = replace(
                run.distribution, commits=self.before.commits, server_threads=self.before.server_threads
            )
        self.first_epoch = self.recorded = self.memory.control[ControlField.EPOCHS_DONE]
        self.score_before, self.by_worker_before = score, by_worker
        self.refusals = self.memory.control[ControlField.REFUSALS]

    def begin(self) -> None:
        self.began_s = self._rate_s = self.clock()
        self._rate_version = self.memory.version
        self.closed_before = self._closed_batches()

    def end(self) -> None:
        self.ended_s = self.clock()

    @property
    def train_s(self) -> float:
        return self.train_before_s + self.elapsed_s

    @property
    def elapsed_s(self) -> float:
        if self.began_s is None:
            return 0.0
        return (self.ended_s or self.clock()) - self.began_s

    @property
    def samples_per_s(self) -> float:
        batches = self._closed_batches() - self.closed_before
        return batches * self.samples / self.memory.sizes.batches / max(self.elapsed_s, 1e-9)

    @property
    def passes(self) -> float:
        """Passes over the data so far."""
        return self._closed_batches() / self.memory.sizes.batches

    def _closed_batches(self) -> int:
        memory = self.memory
        done = memory.control[ControlField.EPOCHS_DONE]
        later = (e for e in batch_status.begun(memory) if e >= done)
        closed = sum(sum(batch_status.counts(memory, epoch)) for epoch in later)
        return done * memory.sizes.batches + closed

    def update(self) -> None:
        now_s, version = self.clock(), self.memory.version
        self._note_epochs(now_s)
        if now_s - self._rate_s >= RATE_EVERY_S:
            self._rate = (version - self._rate_version) / (now_s - self._rate_s)
            self._rate_s, self._rate_version = now_s, version
        count = self.memory.control[ControlField.REFUSALS]
        for number in range(self.refusals, min(count, REFUSALS_KEPT)):
            worker, sequence, epoch, batch = self.memory.refusals[number].tolist()
            self.supervisor.note("refused", worker, f"not finite, epoch {epoch + 1}, batch {batch}", sequence)
        self.refusals = max(self.refusals, count)

    def _note_epochs(self, now_s: float) -> None:
        """Notes the epochs that have ended since the last call."""
        ended = self.memory.control[ControlField.EPOCHS_DONE] - self.first_epoch - len(self.epoch_ends_s)
        since_s = self.epoch_ends_s[-1] if self.epoch_ends_s else self.began_s or now_s
        self.epoch_ends_s += [since_s + (now_s - since_s) * number / ended for number in range(1, ended + 1)]

    def score(self, epoch: int) -> Score:
        """Losses and accuracy of an epoch's steps, as far as workers have written them."""
        before = self.score_before if epoch == self.first_epoch else Score()
        return sum((score_of(rows, epoch) for rows in self.memory.scores), before)

    def is_scored(self, epoch: int) -> bool:
        """Whether the workers have written all of an epoch's scores, or had the time to."""
        index = epoch - self.first_epoch
        late = index < len(self.epoch_ends_s) and self.clock() - self.epoch_ends_s[index] > SCORES_WITHIN_S
        return late or self.score(epoch).samples >= self.samples

    def epoch(self, epoch: int, test: Score) -> Epoch:
        self.update()
        self.recorded = epoch + 1
        index = epoch - self.first_epoch
        start_s = self.epoch_ends_s[index - 1] if index else self.began_s or self.epoch_ends_s[0]
        wall_s = max(self.epoch_ends_s[index] - start_s, 1e-9)
        return Epoch.of(epoch, self.score(epoch), test, wall_s, self.samples / wall_s)

    def seconds_at_end_of(self, epoch: int) -> float:
        """Seconds of training by the end of an epoch."""
        return self.train_before_s + self.epoch_ends_s[epoch - self.first_epoch] - (self.began_s or 0.0)

    def progress(self) -> Progress:
        memory = self.memory
        epoch = memory.control[ControlField.EPOCHS_DONE]
        shown = min(epoch, memory.sizes.epochs - 1)
        all_batches = memory.sizes.batches
        closed = sum(batch_status.counts(memory, shown)) if shown == epoch else all_batches
        workers = WorkersProgress(
            alive=self.supervisor.alive, workers=memory.sizes.workers, updates_per_s=self._rate,
            staleness=ledger_of(memory).mean_staleness,
        )  # fmt: skip
        score = self.score(shown)
        return Progress(shown, self.workload.epochs, closed, all_batches, score, self.samples_per_s, workers)

    def distribution(self) -> Distribution:
        memory, supervisor = self.memory, self.supervisor
        by_worker = tuple(self._worker(number) for number in range(memory.sizes.workers))
        return replace(
            self.before,
            seconds=self.train_s,
            steps=sum(worker.batches for worker in by_worker),
            updates=memory.version,
            server_s=memory.control[ControlField.UPDATE_NS] / 1e9,
            ledger=ledger_of(memory),
            by_worker=by_worker,
            faults=(*self.before.faults, *supervisor.recovered),
            fault_count=self.before.fault_count + supervisor.recovered_count,
        )

    def worker_score(self, number: int) -> Score:
        """Losses and accuracy of all that a worker did, as far as it has written them."""
        rows = self.memory.scores[number]
        score = self.by_worker_before[number] + total_of(rows, self.first_epoch, self.recorded)
        open_until = min(self.memory.control[ControlField.EPOCHS_DONE] + 2, len(rows))
        return sum((score_of(rows, epoch) for epoch in range(self.recorded, open_until)), score)

    def _worker(self, number: int) -> WorkerRecord:
        slot = self.memory.slot(number)
        before = self.before.by_worker[number] if self.before.by_worker else WorkerRecord(number, starts=0)
        score = self.worker_score(number)
        waiting_s, communicating_s = slot[SlotField.WAITING_NS] / 1e9, slot[SlotField.COMMUNICATION_NS] / 1e9
        alive_s = 0.0
        if self.began_s is not None:
            alive_s = self.supervisor.alive_s(number, self.began_s, self.ended_s or self.clock())
        accuracies = accuracies_of(self.memory.scores[number], self.first_epoch, self.recorded)
        return WorkerRecord(
            worker=number,
            batches=before.batches + slot[SlotField.STEPS],
            samples=score.samples,
            loss=score.loss,
            accuracy=score.accuracy,
            computing_s=before.computing_s + max(0.0, alive_s - waiting_s - communicating_s),
            communicating_s=before.communicating_s + communicating_s,
            waiting_s=before.waiting_s + waiting_s,
            starts=before.starts + self.supervisor.workers[number].incarnation,
            accuracies=(*before.accuracies, *accuracies),
        )
