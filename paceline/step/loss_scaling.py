"""Dynamic loss scaling for float16, step by step that of `torch.amp.GradScaler`.

Small gradients vanish in float16, so the loss is multiplied before it is differentiated and the gradient divided
afterwards. If a gradient is not finite the update is skipped and the scale halved; after many finite ones it doubles.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from paceline.errors import CheckpointError

if TYPE_CHECKING:
    from paceline.step.phase import Phase

INITIAL_SCALE, GROWTH, BACKOFF, GROWTH_INTERVAL = 65536.0, 2.0, 0.5, 2000
"""The defaults of `torch.amp.GradScaler`."""


class LossScaler:
    def __init__(self, device: torch.device) -> None:
        self.state = {
            "scale": torch.full((), INITIAL_SCALE, device=device),
            "finite in a row": torch.zeros((), dtype=torch.int32, device=device),
            "skipped": torch.zeros((), dtype=torch.int64, device=device),
        }
        self._not_finite = torch.zeros((), device=device)

    def scaled(self, loss: Tensor) -> Tensor:
        return loss * self.state["scale"]

    @torch.no_grad()
    def unscale(self, gradients: list[Tensor]) -> bool:
        """Divides gradients in place; whether all are finite, so that the update can be made. The scale follows."""
        scale, in_a_row = self.state["scale"], self.state["finite in a row"]
        self._not_finite.zero_()
        inverse = scale.double().reciprocal().float()
        torch._amp_foreach_non_finite_check_and_unscale_(gradients, self._not_finite, inverse)
        torch._amp_update_scale_(scale, in_a_row, self._not_finite, GROWTH, BACKOFF, GROWTH_INTERVAL)
        skipped = bool(self._not_finite.item())
        self.state["skipped"] += skipped
        return not skipped

    def load_state(self, saved: dict[str, Tensor]) -> None:
        if saved.keys() != self.state.keys():
            raise CheckpointError("the checkpoint's loss scaling is of another version")
        for name, tensor in self.state.items():
            tensor.copy_(saved[name])

    def reset(self) -> None:
        """Forgets what steps on trial did to it."""
        self.load_state(LossScaler(self._not_finite.device).state)


def scaler_of(phase: Phase) -> LossScaler | None:
    """A phase of the user's own has none."""
    return getattr(phase, "scaler", None)


def scalers_of(phases: Sequence[Phase]) -> list[LossScaler]:
    return [found for phase in phases if (found := scaler_of(phase)) is not None]
