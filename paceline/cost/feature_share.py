"""The share of a network that one process computes where linear layers are divided by feature.

It is a network itself, with smaller linear layers, so it is predicted like any other.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from paceline.step.feature_division import FIRST, GATHERED, FeatureDivision, replace_layer


class GatheredLinear(nn.Linear):
    """Computes a share of the features and returns as many as all processes together."""

    def __init__(self, layer: nn.Linear, parts: int) -> None:
        super().__init__(layer.in_features, layer.out_features // parts, layer.bias is not None)
        self.parts = parts

    def forward(self, x: Tensor) -> Tensor:
        own = super().forward(x)
        return torch.cat([own, *(own.detach() for _ in range(self.parts - 1))], dim=-1)


def keep_share(network: nn.Module, divided: FeatureDivision, parts: int) -> None:
    """Replaces the linear layers of `network` in place by the share of one of `parts` processes."""
    for path, how in divided.layers.items():
        layer = network.get_submodule(path)
        assert isinstance(layer, nn.Linear)
        if how == GATHERED:
            replace_layer(network, path, GatheredLinear(layer, parts))
            continue
        inputs, outputs = layer.in_features, layer.out_features
        sizes = (inputs, outputs // parts) if how == FIRST else (inputs // parts, outputs)
        replace_layer(network, path, nn.Linear(*sizes, bias=layer.bias is not None))
