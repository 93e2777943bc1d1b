"""Fully connected networks on flattened samples (Rumelhart, Hinton & Williams 1986).

They are plain `nn.Sequential`s: at this size the time goes to calling layers, not into them.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence

from torch import nn

from paceline.networks.activation import activation_layer
from paceline.networks.checks import positives


def mlp(
    shape: tuple[int, ...],
    classes: int,
    *,
    dropout: float | None = None,
    activation: str | None = None,
    hidden: int | Sequence[int] = (50,),
) -> nn.Sequential:
    return _feedforward(shape, classes, positives("hidden", hidden), activation or "relu", dropout or 0.0)


def dnn(
    shape: tuple[int, ...],
    classes: int,
    *,
    dropout: float | None = None,
    activation: str | None = None,
    hidden: int | Sequence[int] = (64, 64),
) -> nn.Sequential:
    drop = 0.2 if dropout is None else dropout
    return _feedforward(shape, classes, positives("hidden", hidden), activation or "tanh", drop)


def _feedforward(
    shape: tuple[int, ...], classes: int, hidden: tuple[int, ...], activation: str, dropout: float
) -> nn.Sequential:
    parts: OrderedDict[str, nn.Module] = OrderedDict()
    if len(shape) > 1:
        parts["flatten"] = nn.Flatten()
    inputs = math.prod(shape)
    for number, units in enumerate(hidden, start=1):
        parts[f"fc{number}"] = nn.Linear(inputs, units)
        parts[f"activation{number}"] = activation_layer(activation)
        if dropout:
            parts[f"dropout{number}"] = nn.Dropout(dropout)
        inputs = units
    parts["output"] = nn.Linear(inputs, classes)
    return nn.Sequential(parts)
