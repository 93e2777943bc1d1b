"""Networks over sequences that a calibration measures as a whole. They resemble no real model."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class _Attending(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inputs, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow, self.activation = nn.Linear(width, 3 * width), nn.Linear(3 * width, width), nn.GELU()

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.inputs(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind()
        x = x + self.output(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.narrow(self.activation(self.wide(self.norm2(x))))  # type: ignore[no-any-return]


class Attention(nn.Module):
    """Blocks over the rows of an image; for samples of 3 x 40 x 40."""

    def __init__(self, width: int = 96, blocks: int = 2) -> None:
        super().__init__()
        self.first = nn.Linear(120, width)
        self.blocks = nn.Sequential(*(_Attending(width, 4) for _ in range(blocks)))
        self.last = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.transpose(1, 2).flatten(2)
        return self.last(self.blocks(self.first(rows)).mean(1))  # type: ignore[no-any-return]


def attention() -> nn.Module:
    return Attention()


def deep_attention() -> nn.Module:
    """Many small blocks, which a GPU computes faster than they are launched; for samples of 3 x 40 x 40."""
    return Attention(64, 14)


def small_attention() -> nn.Module:
    """So small that one thread computes it; for samples of 3 x 40 x 40."""
    return Attention(32, 2)


class Recurrent(nn.Module):
    """Reads the rows of an image; for samples of 3 x 40 x 40."""

    def __init__(self, width: int = 80) -> None:
        super().__init__()
        self.lstm = nn.LSTM(120, width, batch_first=True)
        self.last = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.lstm(x.transpose(1, 2).flatten(2))
        return self.last(states[:, -1])  # type: ignore[no-any-return]


def recurrent() -> nn.Module:
    return Recurrent()


def small_recurrent() -> nn.Module:
    """So small that one thread computes it; for samples of 3 x 40 x 40."""
    return Recurrent(24)


class _Encoder(nn.Module):
    """A block over tokens: attention, then two linear layers; causal or not."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.output, self.dropout = nn.Linear(width, width), nn.Dropout(0.1)
        self.wide, self.narrow, self.activation = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.GELU()

    def forward(self, x: Tensor) -> Tensor:
        normed = self.norm1(x)
        q, k, v = (
            linear(normed).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for linear in (self.query, self.key, self.value)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.dropout(self.output(mixed.transpose(1, 2).flatten(2)))
        return x + self.narrow(self.activation(self.wide(self.norm2(x))))  # type: ignore[no-any-return]


class Patches(nn.Module):
    """Attention between the patches of an image; for samples of 3 x 144 x 144."""

    def __init__(self, width: int = 320, patch: int = 12) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.places = nn.Parameter(torch.zeros(1, (144 // patch) ** 2, width))
        self.blocks = nn.Sequential(*(_Encoder(width, 5, causal=False) for _ in range(3)))
        self.norm, self.last = nn.LayerNorm(width), nn.Linear(width, 100)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2) + self.places
        return self.last(self.norm(self.blocks(tokens)).mean(1))  # type: ignore[no-any-return]


def patches() -> nn.Module:
    return Patches()


class Language(nn.Module):
    """Predicts the next token; its last layer has one output per word."""

    def __init__(self, width: int = 448, words: int = 6000, length: int = 320) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(_Encoder(width, 7, causal=True) for _ in range(3)))
        self.norm, self.last = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        places = torch.arange(x.shape[1], device=x.device)
        return self.last(self.norm(self.blocks(self.words(x) + self.places(places))))  # type: ignore[no-any-return]


def language() -> nn.Module:
    return Language()


class _Gated(nn.Module):
    """An RMS norm and a product of two linear layers, as in recent language models."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(width)
        self.gate, self.up, self.down = (
            nn.Linear(width, inner, bias=False),
            nn.Linear(width, inner, bias=False),
            nn.Linear(inner, width, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        normed = self.norm(x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))  # type: ignore[no-any-return]


class Gated(nn.Module):
    """Gated blocks over the rows of an image; for samples of 3 x 144 x 144."""

    def __init__(self, width: int = 352, blocks: int = 5) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(432, width), nn.Linear(width, 100)
        self.blocks = nn.Sequential(*(_Gated(width, 3 * width) for _ in range(blocks)))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.blocks(self.first(x.transpose(1, 2).flatten(2))).mean(1))  # type: ignore[no-any-return]


def gated() -> nn.Module:
    return Gated()


class _Dilated(nn.Module):
    def __init__(self, width: int, size: int, dilation: int) -> None:
        super().__init__()
        padding = dilation * (size - 1) // 2
        self.conv = nn.Conv1d(width, width, size, padding=padding, dilation=dilation)
        self.norm, self.mix = nn.BatchNorm1d(width), nn.Conv1d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.mix(F.gelu(self.norm(self.conv(x))))  # type: ignore[no-any-return]


class Filtered(nn.Module):
    """Convolutions over a sequence; for samples of 3 x 144 x 144, of which each is read as 12 channels."""

    def __init__(self, width: int = 96) -> None:
        super().__init__()
        self.first = nn.Conv1d(12, width, 7, stride=2, padding=3)
        self.blocks = nn.Sequential(*(_Dilated(width, size, dilation) for size, dilation in SEQUENCE_WINDOWS))
        self.last = nn.Linear(width, 100)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.blocks(self.first(x.reshape(x.shape[0], 12, -1))).mean(2))  # type: ignore[no-any-return]


SEQUENCE_WINDOWS = ((5, 1), (3, 2), (3, 4), (5, 8))
"""Sizes and dilations."""


def filtered() -> nn.Module:
    return Filtered()
