"""What the launcher reads from shared memory about how the run goes: speed, losses, waiting, faults."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from paceline.step.tally import Score
from paceline.strategy.distribution import Distribution, WorkerRecord
from paceline.strategy.strategy import Strategy
from paceline.train.local import marks
from paceline.train.local.crew import Crew
from paceline.train.local.memory import EPOCHS_SCORED, REFUSALS_KEPT, Memory
from paceline.train.local.standing import ledger_of
from paceline.train.local.words import SLOT_WORDS, Control, Of
from paceline.train.local.worker_score import score_of
from paceline.train.run import Epoch, Run
from paceline.train.watcher import CrewProgress, Progress

SCORES_WITHIN_S = 1.0


class Accounts:
    def __init__(
        self,
        memory: Memory,
        crew: Crew,
        run: Run,
        strategy: Strategy,
        samples: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.memory, self.crew, self.strategy, self.workload, self.clock = memory, crew, strategy, run.workload, clock
        self.samples = samples * (memory.sizes.workers if strategy.own_pass else 1)
        """Of an epoch."""
        self.before = Distribution(strategy, memory.sizes.workers, "local")
        """Of this run before it was resumed."""
        self.train_before_s = 0.0
        self.began_s: float | None = None
        self.ended_s: float | None = None
        self.epoch_ends_s: list[float] = []
        """When each epoch of this process was done; those seen to end together share the time they took."""
        self.first_epoch, self.closed_before = 0, 0
        self.recorded = 0
        """Epochs that have become part of the record."""
        self.score_before: dict[int, Score] = {}
        self.scores = [Score() for _ in range(memory.sizes.workers)]
        """Of each worker's finished epochs, and of what it did before the run was resumed."""
        self.accuracies: list[list[float]] = [[] for _ in self.scores]
        """Of each worker in each epoch that was recorded since."""
        self.refusals = 0
        self._rate_s, self._rate_version, self._rate = 0.0, 0, 0.0

    def go_on_after(self, run: Run, score: Score, by_worker: list[Score]) -> None:
        """What was counted before the run was resumed: of the epoch under way, and of each worker in all."""
        self.train_before_s = run.train_s
        if run.distribution is not None:
            self.before = run.distribution
        self.first_epoch = self.recorded = self.memory.control[Control.EPOCHS_DONE]
        self.score_before[self.first_epoch] = score
        self.scores = by_worker
        self.refusals = self.memory.control[Control.REFUSALS]

    def begin(self) -> None:
        self.began_s = self._rate_s = self.clock()
        self._rate_version = self.memory.control[Control.VERSION]
        self.closed_before = self._closed_batches()

    def end(self) -> None:
        self.ended_s = self.clock()

    @property
    def train_s(self) -> float:
        return self.train_before_s + self._elapsed_s()

    def _elapsed_s(self) -> float:
        if self.began_s is None:
            return 0.0
        return (self.ended_s or self.clock()) - self.began_s

    @property
    def samples_per_s(self) -> float:
        batches = self._closed_batches() - self.closed_before
        return batches * self.samples / self.memory.sizes.batches / max(self._elapsed_s(), 1e-9)

    def _closed_batches(self) -> int:
        done, version = self.memory.control[Control.EPOCHS_DONE], self.memory.control[Control.VERSION]
        later = (e for e in marks.begun(self.memory.marks, version) if e >= done)
        return done * self.memory.sizes.batches + sum(sum(marks.counts(self.memory.marks, e, version)) for e in later)

    def look(self) -> None:
        now_s, version = self.clock(), self.memory.control[Control.VERSION]
        self._note_epochs(now_s)
        if now_s - self._rate_s >= 0.5:
            self._rate = (version - self._rate_version) / (now_s - self._rate_s)
            self._rate_s, self._rate_version = now_s, version
        count = self.memory.control[Control.REFUSALS]
        for number in range(self.refusals, min(count, REFUSALS_KEPT)):
            worker, sequence, epoch, batch = self.memory.refusals[number].tolist()
            self.crew.note("refused", worker, f"not finite, epoch {epoch + 1}, step {batch}", sequence)
        self.refusals = max(self.refusals, count)

    def _note_epochs(self, now_s: float) -> None:
        """Those that have ended since the last look."""
        ended = self.memory.control[Control.EPOCHS_DONE] - self.first_epoch - len(self.epoch_ends_s)
        since_s = self.epoch_ends_s[-1] if self.epoch_ends_s else self.began_s or now_s
        self.epoch_ends_s += [since_s + (now_s - since_s) * number / ended for number in range(1, ended + 1)]

    def score(self, epoch: int) -> Score:
        """Losses and accuracy of an epoch's steps, as far as workers have told."""
        total = self.score_before.get(epoch, Score())
        for rows in self.memory.scores:
            total += score_of(rows, epoch)
        return total

    def is_told(self, epoch: int) -> bool:
        """Whether the workers have told all of an epoch, or had the time to."""
        index = epoch - self.first_epoch
        late = index < len(self.epoch_ends_s) and self.clock() - self.epoch_ends_s[index] > SCORES_WITHIN_S
        return late or self.score(epoch).samples >= self.samples

    def epoch(self, epoch: int, test: Score) -> Epoch:
        self.look()
        score = self.score(epoch)
        told = [score_of(rows, epoch) for rows in self.memory.scores]
        self.scores = [total + mine for total, mine in zip(self.scores, told, strict=True)]
        for accuracies, mine in zip(self.accuracies, told, strict=True):
            accuracies.append(mine.accuracy)
        self.recorded = epoch + 1
        index = epoch - self.first_epoch
        start_s = self.epoch_ends_s[index - 1] if index else self.began_s or self.epoch_ends_s[0]
        wall_s = max(self.epoch_ends_s[index] - start_s, 1e-9)
        return Epoch(
            epoch + 1, score.loss, score.accuracy, score.top_accuracy, test.loss, test.accuracy, test.top_accuracy,
            wall_s, self.samples / wall_s,
        )  # fmt: skip

    def progress(self) -> Progress:
        memory = self.memory
        version, epoch = memory.control[Control.VERSION], memory.control[Control.EPOCHS_DONE]
        shown = min(epoch, memory.sizes.epochs - 1)
        closed = sum(marks.counts(memory.marks, shown, version)) if shown == epoch else memory.sizes.batches
        crew = CrewProgress(
            alive=self.crew.alive, workers=memory.sizes.workers, updates_per_s=self._rate,
            staleness=ledger_of(memory, version).mean_staleness,
        )  # fmt: skip
        return Progress(
            shown, self.workload.epochs, closed, memory.sizes.batches, self.score(shown), self.samples_per_s, crew
        )

    def distribution(self) -> Distribution:
        memory, crew = self.memory, self.crew
        version = memory.control[Control.VERSION]
        by_worker = tuple(self._worker(number) for number in range(memory.sizes.workers))
        return replace(
            self.before,
            shards=memory.sizes.shards,
            seconds=self.train_s,
            steps=sum(worker.batches for worker in by_worker),
            updates=version,
            server_s=memory.control[Control.SERVER_NS] / 1e9,
            collective=crew.settings.collective,
            sums=self.before.sums + memory.control[Control.SUMS_MADE],
            sums_given_up=self.before.sums_given_up + memory.control[Control.SUMS_GIVEN_UP],
            ledger=ledger_of(memory, version),
            by_worker=by_worker,
            faults=(*self.before.faults, *crew.met),
            fault_count=self.before.fault_count + crew.met_count,
        )

    def worker_score(self, number: int) -> Score:
        """Losses and accuracy of all that a worker did, as far as it has told."""
        score = self.scores[number]
        for epoch in range(self.recorded, self.recorded + EPOCHS_SCORED):
            score += score_of(self.memory.scores[number], epoch)
        return score

    def _worker(self, number: int) -> WorkerRecord:
        words = self.memory.slots[number * SLOT_WORDS : (number + 1) * SLOT_WORDS]
        before = self.before.by_worker[number] if self.before.by_worker else WorkerRecord(number, lives=0)
        score = self.worker_score(number)
        waiting_s, communicating_s = words[Of.WAITING_NS] / 1e9, words[Of.COMMUNICATION_NS] / 1e9
        there_s = 0.0
        if self.began_s is not None:
            there_s = self.crew.there_s(number, self.began_s, self.ended_s or self.clock())
        return WorkerRecord(
            worker=number,
            batches=before.batches + words[Of.STEPS],
            samples=score.samples,
            loss=score.loss,
            accuracy=score.accuracy,
            computing_s=before.computing_s + max(0.0, there_s - waiting_s - communicating_s),
            communicating_s=before.communicating_s + communicating_s,
            waiting_s=before.waiting_s + waiting_s,
            lives=before.lives + self.crew.lives[number],
            accuracies=(*before.accuracies, *self.accuracies[number]),
        )
