"""Validates in a thread while the workers of a run continue: finished epochs, and in between."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, Protocol

from torch import Tensor

from paceline.step.tally import Score
from paceline.training.run import Epoch
from paceline.training.training_run import TrainingRun


class Validation(NamedTuple):
    version: int
    """The version of the parameters that are validated."""
    future: Future[Score]
    epoch: int | None = None
    """The epoch that ended with it; None: it is in between."""
    passes: float = 0.0
    seconds: float = 0.0


class EpochProgress(Protocol):
    """What a driver knows about the epochs of its workers."""

    def is_scored(self, epoch: int) -> bool:
        """Whether the training losses of an epoch are complete, or late."""

    def epoch(self, epoch: int, test: Score) -> Epoch: ...

    def seconds_at_end_of(self, epoch: int) -> float: ...


class ValidationThread:
    def __init__(self, validate: Callable[[Tensor], Score]) -> None:
        """`validate` scores parameters."""
        self.validate = validate
        self._thread = ThreadPoolExecutor(1, "paceline-validate")
        self.queue: deque[Validation] = deque()

    @property
    def is_behind(self) -> bool:
        """Whether a validation between the ends of epochs is still under way; meanwhile no other is begun."""
        return any(one.epoch is None and not one.future.done() for one in self.queue)

    def first_done(self, wait: bool = False) -> Validation | None:
        """The first validation in the queue if it is done; with `wait` it will be when its result is asked for."""
        return self.queue[0] if self.queue and (wait or self.queue[0].future.done()) else None

    def add(
        self, version: int, parameters: Tensor | None, epoch: int | None = None, passes: float = 0.0,
        seconds: float = 0.0,
    ) -> None:  # fmt: skip
        """A validation of these parameters, which nobody changes; None: the epoch is not validated."""
        future: Future[Score] = Future()
        if parameters is None:
            future.set_result(Score())
        else:
            future = self._thread.submit(self.validate, parameters)
        self.queue.append(Validation(version, future, epoch, passes, seconds))

    def report(self, run: TrainingRun, progress: EpochProgress, wait: bool = False) -> None:
        """Reports the validations that are done, in their order; with `wait` all up to an epoch without its losses."""
        while (one := self.first_done(wait)) is not None:
            if one.epoch is not None and not progress.is_scored(one.epoch):
                return  # its losses are still being reported
            self.queue.popleft()
            test = one.future.result()
            if one.epoch is None:
                run.validated(one.passes, one.seconds, one.version, test)
                continue
            done = progress.epoch(one.epoch, test)
            if run.validates(one.epoch):
                run.validated(one.epoch + 1, progress.seconds_at_end_of(one.epoch), one.version, test, done.loss)
            run.finished_epoch(done, one.version)

    def close(self) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)
