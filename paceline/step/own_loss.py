"""The user's own loss: `loss(output, target)`, or `loss(model, batch)` for everything else."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from paceline import user_code
from paceline.errors import WorkloadError, a_type

MODEL_WORDS = ("model", "network", "net", "module")
"""A loss whose first argument is called one of these is given the model and the batch."""


@dataclass(frozen=True, eq=False)
class OwnLoss:
    place: str
    function: Callable[[Any, Any], Any]
    takes_model: bool

    @staticmethod
    def find(place: str) -> OwnLoss:
        """The loss at `module:name`: a function, or a class such as `torch.nn:SmoothL1Loss`."""
        found = user_code.find(place)
        if isinstance(found, type):
            found = user_code.call(place)
        if not callable(found):
            raise WorkloadError(f"loss {place} is {a_type(found)}; it should be a function or an nn.Module")
        names = _arguments(found)
        if names is not None and len(names) < 2:
            raise WorkloadError(f"loss {place} should take (output, target) or (model, batch)")
        return OwnLoss(place, found, names is not None and names[0] in MODEL_WORDS)

    def of_model(self, network: nn.Module, batch: Any) -> tuple[Tensor, Tensor | None]:
        """The loss, and the output to compare with the target if the function returns both."""
        result = self.function(network, batch)
        loss, output = result if isinstance(result, tuple) and len(result) == 2 else (result, None)
        return self.checked(loss), output if isinstance(output, Tensor) else None

    def checked(self, loss: Any) -> Tensor:
        if not isinstance(loss, Tensor) or loss.dim():
            found = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else f"{a_type(loss)}"
            raise WorkloadError(f"loss {self.place} returned {found}; it should be a tensor without dimensions")
        return loss


def _arguments(function: Any) -> list[str] | None:
    """The names of what a function takes by position; None where Python cannot tell."""
    try:
        signature = inspect.signature(function.forward if isinstance(function, nn.Module) else function)
    except (TypeError, ValueError):
        return None
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if any(p.kind is p.VAR_POSITIONAL for p in signature.parameters.values()):
        return None
    return [name for name, parameter in signature.parameters.items() if parameter.kind in kinds]
