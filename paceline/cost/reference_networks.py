"""Small networks that a calibration measures as a whole. They cover common layers and resemble no real model."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class _Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.activation1 = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.activation2 = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.activation1(self.norm1(self.conv1(x)))
        return self.activation2(self.norm2(self.conv2(inner)) + x)  # type: ignore[no-any-return]


def residual() -> nn.Module:
    """Narrow convolutions with batch norm, and sums; for samples of 3 x 40 x 40."""
    return nn.Sequential(
        nn.Conv2d(3, 24, 3, padding=1, bias=False), nn.BatchNorm2d(24), nn.ReLU(inplace=True),
        _Residual(24), nn.MaxPool2d(2), nn.Conv2d(24, 48, 1, bias=False), _Residual(48), _Residual(48),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, 10),
    )  # fmt: skip


def convolutional() -> nn.Module:
    """Wider convolutions with biases, pooling, and large linear layers; for samples of 3 x 40 x 40."""
    return nn.Sequential(
        nn.Conv2d(3, 48, 5, stride=1, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(48, 96, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(96, 128, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(128 * 25, 768), nn.ReLU(inplace=True), nn.Dropout(0.3), nn.Linear(768, 10),
    )  # fmt: skip


def perceptron() -> nn.Module:
    """A plain chain with a hand-written gradient; for samples of 3 x 40 x 40."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(4800, 96), nn.Tanh(), nn.Dropout(0.2), nn.Linear(96, 48), nn.ReLU(), nn.Linear(48, 10),
    )  # fmt: skip


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
    """Two blocks over the rows of an image; for samples of 3 x 40 x 40."""

    def __init__(self, width: int = 96) -> None:
        super().__init__()
        self.first = nn.Linear(120, width)
        self.blocks = nn.Sequential(_Attending(width, 4), _Attending(width, 4))
        self.last = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.transpose(1, 2).flatten(2)
        return self.last(self.blocks(self.first(rows)).mean(1))  # type: ignore[no-any-return]


def attention() -> nn.Module:
    return Attention()


class Recurrent(nn.Module):
    """Reads the rows of an image; for samples of 3 x 40 x 40."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(120, 80, batch_first=True)
        self.last = nn.Linear(80, 10)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.lstm(x.transpose(1, 2).flatten(2))
        return self.last(states[:, -1])  # type: ignore[no-any-return]


def recurrent() -> nn.Module:
    return Recurrent()


DATA = "synthetic:3x40x40/10:2048"
BATCHES = {
    "residual": (8, 32), "convolutional": (16, 64), "perceptron": (32, 128), "attention": (8, 32), "recurrent": (16, 64)
}  # fmt: skip


def example() -> Tensor:
    return torch.zeros(2, 3, 40, 40)
