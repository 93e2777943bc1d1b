"""Tests the parameters of each finished epoch in a thread of the launcher, while the processes go on."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

from paceline.step.tally import Score
from paceline.strategy.learner import Learner
from paceline.train.evaluate import Evaluator
from paceline.train.local.doorbell import Doorbell
from paceline.train.local.memory import Memory
from paceline.train.local.words import Control


class EpochTests:
    def __init__(self, memory: Memory, learner: Learner, evaluator: Evaluator, bell_of_server: Doorbell) -> None:
        self.memory, self.learner, self.evaluator, self.bell_of_server = memory, learner, evaluator, bell_of_server
        self._thread = ThreadPoolExecutor(1, "paceline-test")
        self._running: tuple[int, Future[Score]] | None = None

    def look(self, wait: bool = False) -> tuple[int, Score] | None:
        """The next epoch whose test is done, if there is one; begins the test of the one after it."""
        if self._running is None:
            self._begin()
        if self._running is None or not (wait or self._running[1].done()):
            return None
        epoch, future = self._running
        score = future.result()
        self._running = None
        self._begin()
        return epoch, score

    def _begin(self) -> None:
        control = self.memory.control
        epoch = control[Control.EPOCHS_TAKEN]
        if epoch < control[Control.EPOCHS_DONE]:
            self.learner.show(self.memory.epoch_parameters[epoch % 2])
            control[Control.EPOCHS_TAKEN] = epoch + 1
            self.bell_of_server.ring()
            self._running = epoch, self._thread.submit(self.evaluator.score)

    def close(self) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)
        self.evaluator.close()
