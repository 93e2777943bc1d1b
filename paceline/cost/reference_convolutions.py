"""Convolution networks that a calibration measures as a whole. They resemble no real model."""

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


def small_convolutional() -> nn.Module:
    """So small that one thread computes it; for samples of 3 x 40 x 40."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 24, 3, padding=1), nn.Tanh(),
        nn.AvgPool2d(2), nn.Flatten(), nn.Linear(24 * 25, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 10),
    )  # fmt: skip


def small_residual() -> nn.Module:
    """So small that one thread computes it; for samples of 3 x 40 x 40."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True), _Residual(8),
        nn.MaxPool2d(3, 2, padding=1), nn.Conv2d(8, 16, 1, bias=False), _Residual(16), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(16, 10),
    )  # fmt: skip


class _Bottleneck(nn.Module):
    def __init__(self, width: int, inner: int, stride: int = 1) -> None:
        super().__init__()
        self.narrow = nn.Sequential(
            nn.Conv2d(width, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(inplace=True)
        )
        self.spatial = nn.Sequential(
            nn.Conv2d(inner, inner, 3, stride=stride, padding=1, bias=False), nn.BatchNorm2d(inner),
            nn.ReLU(inplace=True),
        )  # fmt: skip
        self.wide = nn.Sequential(nn.Conv2d(inner, 2 * width, 1, bias=False), nn.BatchNorm2d(2 * width))
        self.short = nn.Conv2d(width, 2 * width, 1, stride=stride, bias=False)
        self.activation = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.wide(self.spatial(self.narrow(x))) + self.short(x))  # type: ignore[no-any-return]


def bottleneck() -> nn.Module:
    """Convolutions from narrow to wide on feature maps that shrink; for samples of 3 x 144 x 144."""
    return nn.Sequential(
        nn.Conv2d(3, 40, 5, stride=2, padding=2, bias=False), nn.BatchNorm2d(40), nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, padding=1), _Bottleneck(40, 48), _Bottleneck(80, 96, 2), _Bottleneck(160, 160, 2),
        _Bottleneck(320, 224, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(640, 100),
    )  # fmt: skip


class _Separable(nn.Module):
    """A depthwise convolution between two pointwise ones, with a gate computed from the whole feature map."""

    def __init__(self, width: int, inner: int, size: int, stride: int) -> None:
        super().__init__()
        self.expand, self.norm1 = nn.Conv2d(width, inner, 1, bias=False), nn.BatchNorm2d(inner)
        self.depthwise = nn.Conv2d(inner, inner, size, stride=stride, padding=size // 2, groups=inner, bias=False)
        self.norm2 = nn.BatchNorm2d(inner)
        self.squeeze, self.excite = nn.Conv2d(inner, inner // 4, 1), nn.Conv2d(inner // 4, inner, 1)
        self.project, self.norm3 = nn.Conv2d(inner, 2 * width, 1, bias=False), nn.BatchNorm2d(2 * width)

    def forward(self, x: Tensor) -> Tensor:
        x = F.silu(self.norm2(self.depthwise(F.silu(self.norm1(self.expand(x))))))
        gate = torch.sigmoid(self.excite(F.silu(self.squeeze(x.mean((2, 3), keepdim=True)))))
        return self.norm3(self.project(x * gate))  # type: ignore[no-any-return]


class _LastNorm(nn.Module):
    """A large depthwise convolution, then linear layers over the channels as the last dimension."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm, self.wide, self.narrow = (
            nn.LayerNorm(width),
            nn.Linear(width, 3 * width),
            nn.Linear(3 * width, width),
        )

    def forward(self, x: Tensor) -> Tensor:
        inner = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + self.narrow(F.gelu(self.wide(inner))).permute(0, 3, 1, 2)  # type: ignore[no-any-return]


def separable() -> nn.Module:
    """Depthwise convolutions, gates and norms of the channels; for samples of 3 x 144 x 144."""
    return nn.Sequential(
        nn.Conv2d(3, 24, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(24), nn.SiLU(inplace=True),
        _Separable(24, 72, 3, 2), _LastNorm(48), _Separable(48, 192, 5, 2), _LastNorm(96), _LastNorm(96),
        _Separable(96, 384, 3, 2), _LastNorm(192), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(192, 100),
    )  # fmt: skip


def _pointwise_pair(width: int, outputs: int, stride: int) -> list[nn.Module]:
    return [
        nn.Conv2d(width, width, 3, stride=stride, padding=1, groups=width, bias=False), nn.BatchNorm2d(width),
        nn.ReLU6(inplace=True), nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs),
        nn.ReLU6(inplace=True),
    ]  # fmt: skip


def depthwise() -> nn.Module:
    """Depthwise and pointwise convolutions in turn, grouped ones at the end; for samples of 3 x 144 x 144."""
    return nn.Sequential(
        nn.Conv2d(3, 40, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(40), nn.ReLU6(inplace=True),
        *_pointwise_pair(40, 80, 1), *_pointwise_pair(80, 144, 2), *_pointwise_pair(144, 144, 1),
        *_pointwise_pair(144, 288, 2), nn.Conv2d(288, 288, 3, padding=1, groups=8, bias=False), nn.BatchNorm2d(288),
        nn.ReLU6(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(288, 100),
    )  # fmt: skip


class _Concatenating(nn.Module):
    def __init__(self, width: int, growth: int, layers: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.BatchNorm2d(width + i * growth) for i in range(layers))
        self.convolutions = nn.ModuleList(
            nn.Conv2d(width + i * growth, growth, 3, padding=1, bias=False) for i in range(layers)
        )

    def forward(self, x: Tensor) -> Tensor:
        for norm, convolution in zip(self.norms, self.convolutions, strict=True):
            x = torch.cat([x, convolution(F.relu(norm(x)))], 1)
        return x


def concatenating() -> nn.Module:
    """Layers that see the outputs of all before them; for samples of 3 x 144 x 144."""
    return nn.Sequential(
        nn.Conv2d(3, 48, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(48), nn.ReLU(inplace=True),
        nn.AvgPool2d(2), _Concatenating(48, 24, 5), nn.Conv2d(168, 80, 1, bias=False), nn.AvgPool2d(2),
        _Concatenating(80, 24, 6), nn.BatchNorm2d(224), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(224, 100),
    )  # fmt: skip


class _GroupNormed(nn.Module):
    """Group norm, activation, convolution; with a sum where the width stays."""

    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(8, width), nn.Conv2d(width, outputs, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(8, outputs), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.same = width == outputs

    def forward(self, x: Tensor) -> Tensor:
        inner = self.conv2(F.silu(self.norm2(self.conv1(F.silu(self.norm1(x))))))
        return inner + x if self.same else inner  # type: ignore[no-any-return]


def group_normed() -> nn.Module:
    """Group norms, and convolutions that make feature maps smaller and larger; for samples of 3 x 144 x 144."""
    return nn.Sequential(
        nn.Conv2d(3, 40, 3, stride=2, padding=1), _GroupNormed(40, 40), nn.Conv2d(40, 80, 3, stride=2, padding=1),
        _GroupNormed(80, 80), _GroupNormed(80, 160), nn.ConvTranspose2d(160, 48, 2, stride=2), _GroupNormed(48, 48),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, 100),
    )  # fmt: skip


def deep_convolutional() -> nn.Module:
    """Many small layers, which a GPU computes faster than they are launched; for samples of 3 x 40 x 40."""
    layers = [
        layer
        for _ in range(36)
        for layer in (nn.Conv2d(24, 24, 3, padding=1, bias=False), nn.BatchNorm2d(24), nn.ReLU(inplace=True))
    ]
    return nn.Sequential(
        nn.Conv2d(3, 24, 3, stride=2, padding=1), *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 10),
    )  # fmt: skip
