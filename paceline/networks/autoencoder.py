"""The auto-encoder (Hinton & Salakhutdinov 2006): a sample becomes a short code, from which it is reconstructed.

Its loss is the mean squared error per number, so its errors can be compared with those of principal components.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paceline.networks.activation import activation_layer
from paceline.networks.checks import positive, positives
from paceline.networks.criterion import Criterion, SampleMetric
from paceline.networks.learned import ImageGrid, Panel, Scatter

ROWS, COLUMNS = 3, 12
"""Of samples in a figure."""


def autoencoder(
    shape: tuple[int, ...],
    classes: int,
    *,
    dropout: float | None = None,
    activation: str | None = None,
    hidden: int | Sequence[int] = (256, 128),
    code: int = 20,
) -> Autoencoder:
    """`hidden` are the layers of the encoder; the decoder has them in reverse."""
    inputs, units, name = math.prod(shape), positives("hidden", hidden), activation or "relu"
    encoder = layers_of((inputs, *units), name, dropout or 0.0, nn.Linear(units[-1], positive("code", code)))
    decoder = layers_of((code, *units[::-1]), name, dropout or 0.0, nn.Linear(units[0], inputs))
    return Autoencoder(shape, encoder, decoder)


def layers_of(units: Sequence[int], activation: str, dropout: float, output: nn.Module) -> nn.Sequential:
    """Fully connected layers, each followed by its activation, and the last one as it is given."""
    parts: OrderedDict[str, nn.Module] = OrderedDict()
    for number, (before, after) in enumerate(pairwise(units), start=1):
        parts[f"fc{number}"] = nn.Linear(before, after)
        parts[f"activation{number}"] = activation_layer(activation)
        if dropout:
            parts[f"dropout{number}"] = nn.Dropout(dropout)
    parts["output"] = output
    return nn.Sequential(parts)


class Autoencoder(nn.Module):
    def __init__(self, shape: tuple[int, ...], encoder: nn.Module, decoder: nn.Module) -> None:
        super().__init__()
        self.shape, self.encoder, self.decoder = shape, encoder, decoder
        self.metric = SampleMetric("reconstruction error", lambda x, y: squared_error(self(x), x))

    def forward(self, x: Tensor) -> Tensor:
        """The reconstruction."""
        return self.decoder(self.encoder(x.flatten(1))).view(x.shape)  # type: ignore[no-any-return]

    def criteria(self) -> list[Criterion]:
        return [Criterion("reconstruct", list(self.parameters()), lambda x, y: F.mse_loss(self(x), x))]

    def learned(self, x: Tensor, y: Tensor) -> Sequence[Panel]:
        """Samples above their reconstructions, and the two main directions of the codes."""
        panels: list[Panel] = []
        if len(self.shape) == 3:
            panels.append(reconstructions(x, self(x)))
        codes = self.encoder(x.flatten(1))
        return [*panels, Scatter("Codes", principal(codes, 2), y, "first component", "second component")]


def reconstructions(x: Tensor, reconstructed: Tensor) -> ImageGrid:
    """Some samples, each above its reconstruction."""
    columns = min(COLUMNS, len(x))
    rows = min(ROWS, len(x) // columns)
    pairs = torch.stack([part[: rows * columns].unflatten(0, (rows, columns)) for part in (x, reconstructed)], dim=1)
    return ImageGrid(
        "Test samples, each above its reconstruction", pairs.flatten(0, 1), ("sample", "from its code") * rows
    )


def squared_error(one: Tensor, other: Tensor) -> Tensor:
    """The mean over the numbers of each sample."""
    return (one - other).square().flatten(1).mean(1)


def principal(points: Tensor, count: int) -> Tensor:
    """The coordinates of points along their first principal components."""
    centred = points - points.mean(0)
    directions: Tensor = torch.linalg.svd(centred, full_matrices=False).Vh
    return centred @ directions[:count].t()
