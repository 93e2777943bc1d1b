"""The progress of a run, as the launcher reads it from shared memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from paceline.step.tally import Score
from paceline.strategy.distribution import Distribution, FaultRecord, WorkerRecord
from paceline.training.drivers.local import batch_status
from paceline.training.drivers.local.fields import ControlField, SlotField
from paceline.training.drivers.local.position import ledger_of
from paceline.training.drivers.local.shared_memory import REFUSALS_KEPT, SharedMemory
from paceline.training.drivers.local.supervisor import Supervisor
from paceline.training.drivers.local.worker_score import accuracies_of, score_of, total_of
from paceline.training.run import Epoch, Run
from paceline.training.run_progress import RunProgress, RunState
from paceline.workload import Workload


class LocalProgress(RunProgress):
    def __init__(
        self, memory: SharedMemory, supervisor: Supervisor, workload: Workload, described: Distribution, samples: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        passes = memory.sizes.workers if described.strategy.full_pass_per_worker else 1
        super().__init__(workload, described, passes * samples, memory.sizes.batches, clock)
        self.memory, self.supervisor = memory, supervisor
        self.first_epoch = 0
        self.recorded = 0
        """Epochs that have become part of the record."""
        self.score_before = Score()
        """The first epoch's score before the run was resumed in the middle of it."""
        self.by_worker_before = [Score()] * memory.sizes.workers
        """Each worker's score before the run was resumed."""
        self.refusals = 0

    def continue_from(self, run: Run, score: Score, by_worker: list[Score]) -> None:
        """Adds counts from before the run was resumed: of the current epoch, and of each worker in total."""
        self.resume(run, ledger_of(self.memory).closed)
        self.first_epoch = self.recorded = self.memory.control[ControlField.EPOCHS_DONE]
        self.score_before, self.by_worker_before = score, by_worker
        self.refusals = self.memory.control[ControlField.REFUSALS]

    def update(self) -> None:
        now_s = self.clock()
        self._note_epochs(now_s)
        self.note(now_s, self.memory.version)
        count = self.memory.control[ControlField.REFUSALS]
        for number in range(self.refusals, min(count, REFUSALS_KEPT)):
            worker, sequence, epoch, batch = self.memory.refusals[number].tolist()
            self.supervisor.note("refused", worker, f"not finite, epoch {epoch + 1}, batch {batch}", sequence)
        self.refusals = max(self.refusals, count)

    def _note_epochs(self, now_s: float) -> None:
        """Records epochs that have ended since the last call; epochs seen together share their time equally."""
        first, done = self.first_epoch + len(self.epoch_ends_s), self.memory.control[ControlField.EPOCHS_DONE]
        since_s = self.epoch_ends_s.get(first - 1, self.began_s or now_s)
        for epoch in range(first, done):
            self.epoch_ends_s[epoch] = since_s + (now_s - since_s) * (epoch + 1 - first) / (done - first)

    def standing(self) -> RunState:
        memory, done = self.memory, self.memory.control[ControlField.EPOCHS_DONE]
        closed, updating_s = sum(batch_status.counts(memory, done)), memory.control[ControlField.UPDATE_NS] / 1e9
        return RunState(memory.version, done, closed, self.supervisor.alive, updating_s, ledger_of(memory))

    def score(self, epoch: int) -> Score:
        before = self.score_before if epoch == self.first_epoch else Score()
        return sum((score_of(rows, epoch) for rows in self.memory.scores), before)

    def epoch(self, epoch: int, test: Score) -> Epoch:
        self.update()
        self.recorded = epoch + 1
        return super().epoch(epoch, test)

    def faults(self) -> tuple[Sequence[FaultRecord], int]:
        return self.supervisor.recovered, self.supervisor.recovered_count

    def worker_score(self, number: int) -> Score:
        """Losses and accuracy of a worker's batches, as far as it has written them."""
        rows = self.memory.scores[number]
        score = self.by_worker_before[number] + total_of(rows, self.first_epoch, self.recorded)
        open_until = min(self.memory.control[ControlField.EPOCHS_DONE] + 2, len(rows))
        return sum((score_of(rows, epoch) for epoch in range(self.recorded, open_until)), score)

    def counted(self, number: int) -> WorkerRecord:
        slot, score = self.memory.slot(number), self.worker_score(number)
        waiting_s, communicating_s = slot[SlotField.WAITING_NS] / 1e9, slot[SlotField.COMMUNICATION_NS] / 1e9
        alive_s = 0.0
        if self.began_s is not None:
            alive_s = self.supervisor.alive_s(number, self.began_s, self.ended_s or self.clock())
        return WorkerRecord(
            worker=number,
            batches=slot[SlotField.STEPS],
            samples=score.samples,
            loss=score.loss,
            accuracy=score.accuracy,
            computing_s=max(0.0, alive_s - waiting_s - communicating_s),
            communicating_s=communicating_s,
            waiting_s=waiting_s,
            starts=self.supervisor.workers[number].incarnation,
            accuracies=tuple(accuracies_of(self.memory.scores[number], self.first_epoch, self.recorded)),
        )
