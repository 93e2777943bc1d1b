"""A worker's losses and accuracy by epoch, written into shared memory now and then: counting them costs a little."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.step.tally import Score, Tally
from paceline.training.drivers.local.shared_memory import SharedMemory

PAUSE_NS = 250_000_000
_ATTEMPTS = 100


class WorkerScore:
    def __init__(self, memory: SharedMemory, worker: int, top: int) -> None:
        self.rows, self.top = memory.scores[worker], top
        self.tallies: dict[int, tuple[Tally, Score]] = {}
        """The tally of each epoch, and what former incarnations of the worker had counted."""
        self.changed: set[int] = set()
        self.current: tuple[int, Tally] | None = None
        self.written_ns = time.monotonic_ns()

    def tally(self, epoch: int) -> Tally:
        if self.current is None or self.current[0] != epoch:
            if self.current is not None:
                self.write()
            if epoch not in self.tallies:
                self.tallies[epoch] = Tally(self.top), score_of(self.rows, epoch)
                self.tallies = {e: t for e, t in self.tallies.items() if e >= epoch - 2}  # two are open at a time
            self.current = epoch, self.tallies[epoch][0]
        self.changed.add(epoch)
        return self.current[1]

    def write_if_due(self, now_ns: int) -> None:
        if now_ns - self.written_ns >= PAUSE_NS:
            self.write()

    def write(self) -> None:
        for epoch in self.changed:
            tally, before = self.tallies[epoch]
            score = before + tally.read()
            row = self.rows[epoch]
            count = int(row[0]) | 1
            row[0] = count  # odd: being written
            row[1:] = score.loss_sum, score.samples, score.correct, score.correct_top, score.classified
            row[0] = count + 1
        self.changed.clear()
        self.written_ns = time.monotonic_ns()


def score_of(rows: npt.NDArray[Any], epoch: int) -> Score:
    """A worker's score of an epoch, read consistently."""
    if epoch == len(rows):  # all have ended
        return Score()
    row = rows[epoch]
    for _ in range(_ATTEMPTS):
        count, loss_sum, *counts = row.tolist()
        if count % 2 == 0 and row[0] == count:
            return Score(loss_sum, *map(round, counts))
    return Score()  # its writer died while it wrote


def total_of(rows: npt.NDArray[Any], first: int, last: int) -> Score:
    """The sum over epochs that have ended."""
    loss_sum, *counts = rows[first:last, 1:].sum(axis=0).tolist()
    return Score(loss_sum, *map(round, counts))


def accuracies_of(rows: npt.NDArray[Any], first: int, last: int) -> list[float]:
    """The accuracy of each ended epoch; NaN where nothing was classified."""
    with np.errstate(invalid="ignore"):
        accuracies: list[float] = (rows[first:last, 3] / rows[first:last, 5]).tolist()
    return accuracies
