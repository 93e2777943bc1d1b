"""Validates in a thread while the workers of a run continue: finished epochs, and in between."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from torch import Tensor

from paceline.step.tally import Score


class Validation(NamedTuple):
    version: int
    """The version of the parameters that are validated."""
    future: Future[Score]
    epoch: int | None = None
    """The epoch that ended with it; None: it is in between."""
    passes: float = 0.0
    seconds: float = 0.0


class ValidationThread:
    def __init__(self, validate: Callable[[Tensor], Score]) -> None:
        """`validate` scores parameters."""
        self.validate = validate
        self._thread = ThreadPoolExecutor(1, "paceline-validate")
        self.queue: deque[Validation] = deque()

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

    def close(self) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)
