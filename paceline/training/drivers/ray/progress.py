"""The progress of a run, computed from the server's reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from paceline.step.tally import Score
from paceline.strategy.distribution import Distribution, FaultRecord, WorkerRecord
from paceline.training.drivers.ray.messages import ServerState, Status, WorkerReport
from paceline.training.drivers.ray.supervisor import Supervisor
from paceline.training.run_progress import RunProgress, RunState
from paceline.workload import Workload


class RayProgress(RunProgress):
    def __init__(self, workload: Workload, described: Distribution, samples: int, batches: int) -> None:
        super().__init__(workload, described, samples, batches)
        self.supervisor: Supervisor | None = None
        self.status = Status("", begun=False)
        self.scores: dict[int, Score] = {}

    def update(self, status: Status) -> None:
        now_s = self.clock()
        self.status = status
        if status.began_ago_s is not None and self.began_s is None:
            self.begin(now_s - status.began_ago_s, status.version)
        if status.ended_ago_s is not None and self.ended_s is None:
            self.ended_s = now_s - status.ended_ago_s
        for epoch, ago_s in status.epoch_ended_ago_s.items():
            self.epoch_ends_s.setdefault(epoch, now_s - ago_s)
        self.scores.update(status.scores)
        self.note(now_s, status.version)

    def restored(self, state: ServerState) -> None:
        """The server went back to a checkpoint: what ended since will end again."""
        self.epoch_ends_s = {epoch: s for epoch, s in self.epoch_ends_s.items() if epoch < state.epochs_done}
        self.scores.clear()
        self._rate_version = state.version

    def distribution(self) -> Distribution:
        return replace(super().distribution(), nodes=self.status.nodes)

    def standing(self) -> RunState:
        now = self.status
        return RunState(now.version, now.epochs_done, now.closed, now.alive, now.updating_s, now.ledger)

    def score(self, epoch: int) -> Score:
        return self.scores.get(epoch, Score())

    def faults(self) -> tuple[Sequence[FaultRecord], int]:
        found, refusals = self.supervisor, self.status.refusals
        if found is None:
            return refusals, len(refusals)
        return sorted([*found.faults, *refusals], key=lambda fault: fault.at_s), found.fault_count + len(refusals)

    def counted(self, number: int) -> WorkerRecord:
        status = self.status
        report = status.by_worker[number] if status.by_worker else WorkerReport()
        score = status.totals[number] if status.totals else Score()
        return WorkerRecord(
            worker=number,
            batches=report.steps,
            samples=score.samples,
            loss=score.loss,
            accuracy=score.accuracy,
            computing_s=max(0.0, report.joined_s - report.waiting_s - report.communicating_s),
            communicating_s=report.communicating_s,
            waiting_s=report.waiting_s,
            starts=self.supervisor.workers[number].starts if self.supervisor else 0,
            accuracies=status.accuracies[number] if status.accuracies else (),
        )
