"""Validates in a thread of the launcher, while the processes of the run continue: finished epochs, and in between."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from torch import Tensor

from paceline.step.tally import Score
from paceline.training.drivers.local.doorbell import Doorbell
from paceline.training.drivers.local.fields import ControlField
from paceline.training.drivers.local.shared_memory import SharedMemory


class ValidationThread:
    def __init__(
        self, memory: SharedMemory, validate: Callable[[Tensor], Score], wanted: Callable[[int], bool], server: Doorbell
    ) -> None:
        """`validate` scores parameters; `wanted` says of an epoch whether it is validated at all."""
        self.memory, self.validate, self.wanted, self.server = memory, validate, wanted, server
        self._thread = ThreadPoolExecutor(1, "paceline-validate")
        self._epochs: deque[tuple[int, int, Future[Score]]] = deque()
        """Epochs that are done, with the version of their parameters."""
        self.between: deque[tuple[float, float, int, Future[Score]]] = deque()
        """Passes, seconds and updates of validations between the ends of epochs."""

    def finished_epoch(self, wait: bool = False) -> tuple[int, int, Score] | None:
        """The next epoch whose validation is done, if there is one, and the version of its parameters."""
        self._take_epochs()
        if not self._epochs or not (wait or self._epochs[0][2].done()):
            return None
        epoch, version, future = self._epochs.popleft()
        return epoch, version, future.result()

    def add(self, passes: float, seconds: float, updates: int, parameters: Tensor) -> None:
        """A validation of these parameters, which nobody changes."""
        self.between.append((passes, seconds, updates, self._thread.submit(self.validate, parameters)))

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
            self._epochs.append((epoch, control[ControlField.EPOCH_VERSION + epoch % 2], future))
            epoch += 1
            control[ControlField.EPOCHS_TAKEN] = epoch
            self.server.notify()

    def close(self) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)
