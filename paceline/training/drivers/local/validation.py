"""Validates in a thread of the launcher while the processes of the run continue: finished epochs, and in between."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from torch import Tensor

from paceline.step.tally import Score
from paceline.training.drivers.local.doorbell import Doorbell
from paceline.training.drivers.local.fields import ControlField
from paceline.training.drivers.local.shared_memory import SharedMemory


class Validation(NamedTuple):
    version: int
    """The version of the parameters that are validated."""
    future: Future[Score]
    epoch: int | None = None
    """The epoch that ended with it; None: it is in between."""
    passes: float = 0.0
    seconds: float = 0.0


class ValidationThread:
    def __init__(
        self, memory: SharedMemory, validate: Callable[[Tensor], Score], wanted: Callable[[int], bool], server: Doorbell
    ) -> None:
        """`validate` scores parameters; `wanted` says whether an epoch is validated at all."""
        self.memory, self.validate, self.wanted, self.server = memory, validate, wanted, server
        self._thread = ThreadPoolExecutor(1, "paceline-validate")
        self.queue: deque[Validation] = deque()

    def first_done(self, wait: bool = False) -> Validation | None:
        """The first validation in the queue if it is done; with `wait` it will be when its result is asked for."""
        self._take_epochs()
        return self.queue[0] if self.queue and (wait or self.queue[0].future.done()) else None

    def add(self, passes: float, seconds: float, version: int, parameters: Tensor) -> None:
        """A validation of these parameters, which nobody changes."""
        future = self._thread.submit(self.validate, parameters)
        self.queue.append(Validation(version, future, None, passes, seconds))

    def _take_epochs(self) -> None:
        control = self.memory.control
        epoch = control[ControlField.EPOCHS_TAKEN]
        while epoch < control[ControlField.EPOCHS_DONE]:
            if self.wanted(epoch):
                parameters = self.memory.epoch_parameters[epoch % 2].clone()
                future = self._thread.submit(self.validate, parameters)
            else:
                future = Future()
                future.set_result(Score())
            self.queue.append(Validation(control[ControlField.EPOCH_VERSION + epoch % 2], future, epoch))
            epoch += 1
            control[ControlField.EPOCHS_TAKEN] = epoch
            self.server.notify()

    def close(self) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)
