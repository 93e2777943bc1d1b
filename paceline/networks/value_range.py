"""The range of the numbers of the data, which a network that makes samples keeps its own within."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ValueRange(nn.Module):
    """From 0 to 1, and wider where training samples are; the limits are saved with the parameters."""

    limits: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("limits", torch.tensor([0.0, 1.0]))

    @torch.no_grad()
    def widen(self, x: Tensor) -> None:
        """Takes in training samples; those of a test leave it as it is."""
        if self.training:
            low, high = torch.minimum(self.limits[0], x.amin()), torch.maximum(self.limits[1], x.amax())
            self.limits.copy_(torch.stack([low, high]))

    def to_unit(self, x: Tensor) -> Tensor:
        """The range becomes that from 0 to 1."""
        low, high = self.limits.unbind()
        return (x - low) / (high - low)

    def from_unit(self, x: Tensor) -> Tensor:
        low, high = self.limits.unbind()
        return low + (high - low) * x
