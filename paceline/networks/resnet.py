"""Residual networks (He et al. 2015): 18 and 50 layers as torchvision has them, 20 layers for small images.

The 50-layer network strides in its 3 x 3 convolutions ("v1.5"), the paper's in the 1 x 1 ones before them.
"""

from __future__ import annotations

from collections import OrderedDict

import torch
import torch.nn.functional as F
from torch import nn

from paceline.networks.activation import activation_layer
from paceline.networks.checks import image_shape


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions with a residual connection."""

    def __init__(self, inputs: int, outputs: int, stride: int, downsample: nn.Module | None, activation: str) -> None:
        super().__init__()
        self.conv1 = _convolution(inputs, outputs, 3, stride)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.activation1 = activation_layer(activation, inplace=True)
        self.conv2 = _convolution(outputs, outputs, 3)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = downsample
        self.activation2 = activation_layer(activation, inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.activation1(self.bn1(self.conv1(x)))
        x = self.bn2(self.conv2(x))
        return self.activation2(x + shortcut)  # type: ignore[no-any-return]


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3 and 1 x 1 convolutions that narrow and widen the channels, with a residual connection."""

    def __init__(self, inputs: int, outputs: int, stride: int, downsample: nn.Module | None, activation: str) -> None:
        super().__init__()
        width = outputs // 4
        self.conv1 = _convolution(inputs, width, 1)
        self.bn1 = nn.BatchNorm2d(width)
        self.activation1 = activation_layer(activation, inplace=True)
        self.conv2 = _convolution(width, width, 3, stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.activation2 = activation_layer(activation, inplace=True)
        self.conv3 = _convolution(width, outputs, 1)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample = downsample
        self.activation3 = activation_layer(activation, inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.activation1(self.bn1(self.conv1(x)))
        x = self.activation2(self.bn2(self.conv2(x)))
        x = self.bn3(self.conv3(x))
        return self.activation3(x + shortcut)  # type: ignore[no-any-return]


class Subsample(nn.Module):
    """The paper's shortcut A without parameters: every second pixel, zero-padded channels."""

    def __init__(self, new_channels: int) -> None:
        super().__init__()
        self.before = new_channels // 2
        self.after = new_channels - self.before

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.before, self.after))


def resnet18(
    shape: tuple[int, ...], classes: int, *, dropout: float | None = None, activation: str | None = None
) -> nn.Sequential:
    channels, _, _ = image_shape("resnet18", shape)
    name = activation or "relu"
    parts = _stem(channels, name)
    parts["layer1"] = _stage(BasicBlock, 2, 64, 64, 1, name)
    parts["layer2"] = _stage(BasicBlock, 2, 64, 128, 2, name)
    parts["layer3"] = _stage(BasicBlock, 2, 128, 256, 2, name)
    parts["layer4"] = _stage(BasicBlock, 2, 256, 512, 2, name)
    return _with_head(parts, 512, classes, dropout)


def resnet50(
    shape: tuple[int, ...], classes: int, *, dropout: float | None = None, activation: str | None = None
) -> nn.Sequential:
    channels, _, _ = image_shape("resnet50", shape)
    name = activation or "relu"
    parts = _stem(channels, name)
    parts["layer1"] = _stage(Bottleneck, 3, 64, 256, 1, name)
    parts["layer2"] = _stage(Bottleneck, 4, 256, 512, 2, name)
    parts["layer3"] = _stage(Bottleneck, 6, 512, 1024, 2, name)
    parts["layer4"] = _stage(Bottleneck, 3, 1024, 2048, 2, name)
    return _with_head(parts, 2048, classes, dropout)


def resnet20(
    shape: tuple[int, ...], classes: int, *, dropout: float | None = None, activation: str | None = None
) -> nn.Sequential:
    channels, _, _ = image_shape("resnet20", shape)
    name = activation or "relu"
    parts: OrderedDict[str, nn.Module] = OrderedDict()
    parts["conv1"] = _convolution(channels, 16, 3)
    parts["bn1"] = nn.BatchNorm2d(16)
    parts["activation1"] = activation_layer(name, inplace=True)
    parts["layer1"] = _stage(BasicBlock, 3, 16, 16, 1, name)
    parts["layer2"] = _stage(BasicBlock, 3, 16, 32, 2, name, Subsample(16))
    parts["layer3"] = _stage(BasicBlock, 3, 32, 64, 2, name, Subsample(32))
    return _with_head(parts, 64, classes, dropout)


def _convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    """Without a bias, because the batch norm that follows has one."""
    return nn.Conv2d(inputs, outputs, size, stride=stride, padding=size // 2, bias=False)


def _stem(channels: int, activation: str) -> OrderedDict[str, nn.Module]:
    """Reduces the image's sides by four before the first block."""
    parts: OrderedDict[str, nn.Module] = OrderedDict()
    parts["conv1"] = _convolution(channels, 64, 7, stride=2)
    parts["bn1"] = nn.BatchNorm2d(64)
    parts["activation1"] = activation_layer(activation, inplace=True)
    parts["pool1"] = nn.MaxPool2d(3, stride=2, padding=1)
    return parts


def _stage(
    block: type[BasicBlock] | type[Bottleneck],
    blocks: int,
    inputs: int,
    outputs: int,
    stride: int,
    activation: str,
    downsample: nn.Module | None = None,
) -> nn.Sequential:
    """A sequence of blocks; the first may change the size, and its shortcut with it."""
    if downsample is None and (stride != 1 or inputs != outputs):
        downsample = nn.Sequential(_convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))
    first = block(inputs, outputs, stride, downsample, activation)
    return nn.Sequential(first, *(block(outputs, outputs, 1, None, activation) for _ in range(1, blocks)))


def _with_head(parts: OrderedDict[str, nn.Module], inputs: int, classes: int, dropout: float | None) -> nn.Sequential:
    parts["average"] = nn.AdaptiveAvgPool2d(1)
    parts["flatten"] = nn.Flatten()
    if dropout:
        parts["dropout1"] = nn.Dropout(dropout)
    parts["output"] = nn.Linear(inputs, classes)
    network = nn.Sequential(parts)
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return network
