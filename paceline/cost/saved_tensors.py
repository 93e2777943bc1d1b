"""What a forward pass saves for the backward pass."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from paceline.cost.allocations import AllocationLog
from paceline.measurement.module_marks import in_backward


class SavedTensors:
    """Counts the memory of tensors that are saved for the backward pass, without the parameters."""

    def __init__(self, log: AllocationLog, parameters: Sequence[Tensor]) -> None:
        self._log, self._parameters = log, {log.number_of(parameter) for parameter in parameters}
        self._sizes: dict[int, int] = {}

    def keep(self, tensor: Tensor) -> Tensor:
        if not in_backward():  # what is computed again for a checkpoint is not saved for long
            self._log.see([tensor])
            self._sizes[self._log.number_of(tensor)] = tensor.untyped_storage().nbytes()
        return tensor

    def give(self, tensor: Tensor) -> Tensor:
        return tensor

    @property
    def bytes(self) -> int:
        return sum(size for number, size in self._sizes.items() if number not in self._parameters)
