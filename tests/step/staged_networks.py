"""A network that is pre-trained layer by layer and then trained as a whole, as its criteria say."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paceline.data.dataset import Dataset
from paceline.networks.criterion import Criterion
from tests.step.small_parts import rows

PRETRAINED = 2
"""Epochs of each layer."""


class Stacked(nn.Module):
    """Two layers, each of which learns to reconstruct its inputs before all learn to classify.

    Every loss draws random numbers, so a wrong seed shows.
    """

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.output = nn.Linear(6, 5), nn.Linear(5, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.output(torch.tanh(self.second(torch.tanh(self.first(x)))))

    def criteria(self) -> list[Criterion]:
        first, second = list(self.first.parameters()), list(self.second.parameters())
        return [
            Criterion("first layer", first, lambda x, y: reconstruction(self.first, x), epochs=(0, PRETRAINED)),
            Criterion("second layer", second, self.second_loss, epochs=(PRETRAINED, 2 * PRETRAINED)),
            Criterion(
                "all layers", list(self.parameters()), self.classify, epochs=(2 * PRETRAINED, None), rate=0.5,
                settings={"schedule": "cosine"},
            ),
        ]  # fmt: skip

    def second_loss(self, x: Tensor, y: Tensor) -> Tensor:
        with torch.no_grad():
            below = torch.tanh(self.first(x))
        return reconstruction(self.second, below)

    def classify(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        scores = self(x + 0.01 * torch.randn_like(x))
        return F.cross_entropy(scores, y), scores


def reconstruction(layer: nn.Linear, x: Tensor) -> Tensor:
    """With the layer's weights in both directions."""
    hidden = torch.tanh(layer(x + 0.1 * torch.randn_like(x)))
    return F.mse_loss(F.linear(hidden, layer.weight.t()), x)


def make() -> Stacked:
    return Stacked()


def data() -> Dataset:
    return rows(103)
