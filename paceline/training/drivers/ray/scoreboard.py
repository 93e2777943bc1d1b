"""Losses, accuracies and times of all workers: each reports what it has counted since it joined."""

from __future__ import annotations

import math
from collections import defaultdict

from paceline.step.tally import Score
from paceline.training.drivers.ray.messages import WorkerReport


class Scoreboard:
    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.reports = [WorkerReport() for _ in range(workers)]
        self._before = [WorkerReport() for _ in range(workers)]
        """What a worker had counted before it joined again."""
        self._scores: list[dict[int, Score]] = [{} for _ in range(workers)]
        self._scores_before = [defaultdict[int, Score](Score) for _ in range(workers)]
        self._restored = [Score()] * workers
        self._restored_epochs: dict[int, Score] = {}

    def restore(self, by_worker: list[Score], epoch: int, score: Score) -> None:
        """Restores the totals of a checkpoint and the score of its unfinished epoch."""
        self._restored, self._restored_epochs = by_worker, {epoch: score}

    def joined(self, worker: int) -> None:
        """Resets the counters of a worker that joined again."""
        self._before[worker] = self.report(worker)
        self.reports[worker] = WorkerReport()
        for epoch, score in self._scores[worker].items():
            self._scores_before[worker][epoch] += score
        self._scores[worker].clear()

    def add(self, worker: int, report: WorkerReport) -> None:
        self.reports[worker] = report._replace(scores=None, spans=())
        self._scores[worker].update(report.scores or {})

    def report(self, worker: int) -> WorkerReport:
        """The report of a worker over all its incarnations."""
        before, now = self._before[worker], self.reports[worker]
        return WorkerReport(
            now.tasks,
            before.steps + now.steps,
            before.communicating_s + now.communicating_s,
            before.waiting_s + now.waiting_s,
            before.joined_s + now.joined_s,
        )

    def _of(self, worker: int, epoch: int) -> Score:
        return self._scores_before[worker][epoch] + self._scores[worker].get(epoch, Score())

    def epoch(self, epoch: int) -> Score:
        found = (self._of(worker, epoch) for worker in range(self.workers))
        return sum(found, self._restored_epochs.get(epoch, Score()))

    def totals(self) -> tuple[Score, ...]:
        return tuple(
            sum((self._of(worker, e) for e in {*self._scores_before[worker], *self._scores[worker]}), before)
            for worker, before in enumerate(self._restored)
        )

    def accuracies(self, first: int, last: int) -> tuple[tuple[float, ...], ...]:
        """Accuracy per worker and epoch; NaN if the worker did nothing in it."""
        return tuple(
            tuple(score.accuracy if (score := self._of(w, e)).samples else math.nan for e in range(first, last))
            for w in range(self.workers)
        )
