"""The user's own metric: a function of all outputs and targets of the test data, as those of scikit-learn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from paceline import user_code
from paceline.errors import PacelineError, WorkloadError, reason


class OwnMetric:
    """Collects outputs and targets on the CPU; the function is called once for all of them."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.function: Callable[[Tensor, Tensor], Any] = user_code.find(place)
        if not callable(self.function):
            raise WorkloadError(f"metric {place} is a {type(self.function).__name__}; it should be a function")
        self.outputs: list[Tensor] = []
        self.targets: list[Tensor] = []

    def add(self, output: Tensor | None, target: Tensor) -> None:
        if output is None:
            raise WorkloadError(f"metric {self.place} needs outputs: let the loss(model, batch) return (loss, output)")
        self.outputs.append(output.detach().cpu())
        self.targets.append(target.cpu())

    def read(self) -> float:
        """The metric of what was added, which is then forgotten."""
        outputs, targets = torch.cat(self.outputs), torch.cat(self.targets)
        self.outputs, self.targets = [], []
        try:
            return float(self.function(outputs, targets))
        except PacelineError:
            raise
        except Exception as error:
            raise WorkloadError(f"metric {self.place} failed: {reason(error)}") from error
