"""A small causal transformer (Vaswani et al. 2017) with the norms before the branches and initial weights of
GPT-2 (Radford et al. 2019).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import nn

from paceline.errors import NetworkError
from paceline.networks.activation import activation_layer
from paceline.networks.checks import depth_of, positive, text_shape

INITIAL_STD = 0.02


def transformer(
    shape: tuple[int, ...],
    classes: int,
    *,
    dropout: float | None = None,
    activation: str | None = None,
    depth: int = 4,
    width: int = 128,
    heads: int = 4,
) -> nn.Sequential:
    length = text_shape("transformer", shape)
    if positive("width", width) % positive("heads", heads):
        raise NetworkError(f"option heads = {heads} must divide width = {width}: change either")
    drop = 0.1 if dropout is None else dropout
    name = activation or "gelu"

    parts: OrderedDict[str, nn.Module] = OrderedDict()
    parts["tokens"] = nn.Embedding(classes, width)
    parts["positions"] = Positions(length, width)
    if drop:
        parts["dropout"] = nn.Dropout(drop)
    for number in range(1, depth_of(depth) + 1):
        parts[f"block{number}"] = TransformerBlock(width, heads, drop, name)
    parts["norm"] = nn.LayerNorm(width)
    parts["output"] = nn.Linear(width, classes)
    network = nn.Sequential(parts)
    _initialise(network, depth)
    return network


class Positions(nn.Module):
    """Adds learned positional embeddings."""

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(length, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length, known = x.shape[1], self.weight.shape[0]
        if length > known:
            raise NetworkError(
                f"a window of {length} characters is longer than the {known} this transformer was built for:"
                " build it with a longer shape"
            )
        return x + self.weight[:length]


class CausalAttention(nn.Module):
    """Every position attends to itself and to earlier ones."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind()
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.projection(seen.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class TransformerBlock(nn.Module):
    linear_pairs: ClassVar = (("fc1", "activation", "fc2"),)
    """Linear layers of which the second gets what the first computes: both can be divided by feature."""

    def __init__(self, width: int, heads: int, dropout: float, activation: str) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = CausalAttention(width, heads)
        self.dropout1 = nn.Dropout(dropout) if dropout else nn.Identity()
        self.norm2 = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, 4 * width)
        self.activation = activation_layer(activation)
        self.fc2 = nn.Linear(4 * width, width)
        self.dropout2 = nn.Dropout(dropout) if dropout else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.dropout1(self.attention(self.norm1(x)))
        return x + self.dropout2(self.fc2(self.activation(self.fc1(self.norm2(x)))))  # type: ignore[no-any-return]


def _initialise(network: nn.Sequential, depth: int) -> None:
    for layer in network.modules():
        if isinstance(layer, nn.Linear | nn.Embedding | Positions):
            nn.init.normal_(layer.weight, std=INITIAL_STD)
        if isinstance(layer, nn.Linear):
            nn.init.zeros_(layer.bias)
    # Each block adds two residual branches; scaling them keeps their sum from growing with the depth.
    for layer in network.modules():
        if isinstance(layer, TransformerBlock):
            for last in (layer.attention.projection, layer.fc2):
                nn.init.normal_(last.weight, std=INITIAL_STD / (2 * depth) ** 0.5)
