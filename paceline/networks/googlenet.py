"""GoogLeNet (Szegedy et al. 2014) as torchvision has it: batch norm after every convolution, and 3 x 3
convolutions where the paper has 5 x 5.
"""

from __future__ import annotations

import torch
from torch import nn

from paceline.errors import NetworkError
from paceline.networks.activation import activation_layer
from paceline.networks.checks import image_shape

# Channels of each inception: 1x1; 3x3 narrowed to, 3x3; second 3x3 narrowed to, second 3x3; after the pool.
INCEPTIONS = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}


def googlenet(
    shape: tuple[int, ...],
    classes: int,
    *,
    dropout: float | None = None,
    activation: str | None = None,
    auxiliary: bool = True,
) -> GoogLeNet:
    channels, _, _ = image_shape("googlenet", shape, at_least=15)
    if not isinstance(auxiliary, bool):
        raise NetworkError(f"option auxiliary = {auxiliary!r} must be true or false")
    return GoogLeNet(channels, classes, dropout, activation or "relu", auxiliary)


class NormedConvolution(nn.Module):
    def __init__(self, inputs: int, outputs: int, size: int, activation: str, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, size, stride=stride, padding=size // 2, bias=False)
        self.bn = nn.BatchNorm2d(outputs, eps=0.001)
        self.activation = activation_layer(activation, inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.activation(self.bn(self.conv(x)))  # type: ignore[no-any-return]


class Inception(nn.Module):
    """Four parallel branches, concatenated by channel."""

    def __init__(self, inputs: int, channels: tuple[int, int, int, int, int, int], activation: str) -> None:
        super().__init__()
        one, narrow, three, second_narrow, second_three, pooled = channels
        self.branch1 = NormedConvolution(inputs, one, 1, activation)
        self.branch2 = nn.Sequential(
            NormedConvolution(inputs, narrow, 1, activation), NormedConvolution(narrow, three, 3, activation)
        )
        self.branch3 = nn.Sequential(
            NormedConvolution(inputs, second_narrow, 1, activation),
            NormedConvolution(second_narrow, second_three, 3, activation),
        )
        self.branch4 = nn.Sequential(
            nn.MaxPool2d(3, stride=1, padding=1), NormedConvolution(inputs, pooled, 1, activation)
        )
        self.outputs = one + three + second_three + pooled

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat((self.branch1(x), self.branch2(x), self.branch3(x), self.branch4(x)), 1)


class AuxiliaryHead(nn.Module):
    """A classifier on an intermediate layer, so that gradients reach the early layers."""

    def __init__(self, inputs: int, classes: int, dropout: float, activation: str) -> None:
        super().__init__()
        self.average = nn.AdaptiveAvgPool2d(4)
        self.conv = NormedConvolution(inputs, 128, 1, activation)
        self.fc1 = nn.Linear(128 * 4 * 4, 1024)
        self.activation = activation_layer(activation, inplace=True)
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()
        self.fc2 = nn.Linear(1024, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.conv(self.average(x)).flatten(1)
        return self.fc2(self.dropout(self.activation(self.fc1(x))))  # type: ignore[no-any-return]


class GoogLeNet(nn.Module):
    """With auxiliary heads it returns (main, aux1, aux2) in training, else the main output only."""

    def __init__(self, channels: int, classes: int, dropout: float | None, activation: str, auxiliary: bool) -> None:
        super().__init__()
        self.conv1 = NormedConvolution(channels, 64, 7, activation, stride=2)
        self.pool1 = nn.MaxPool2d(3, stride=2, ceil_mode=True)
        self.conv2 = NormedConvolution(64, 64, 1, activation)
        self.conv3 = NormedConvolution(64, 192, 3, activation)
        self.pool2 = nn.MaxPool2d(3, stride=2, ceil_mode=True)
        self.inception3a = Inception(192, INCEPTIONS["3a"], activation)
        self.inception3b = Inception(self.inception3a.outputs, INCEPTIONS["3b"], activation)
        self.pool3 = nn.MaxPool2d(3, stride=2, ceil_mode=True)
        self.inception4a = Inception(self.inception3b.outputs, INCEPTIONS["4a"], activation)
        self.inception4b = Inception(self.inception4a.outputs, INCEPTIONS["4b"], activation)
        self.inception4c = Inception(self.inception4b.outputs, INCEPTIONS["4c"], activation)
        self.inception4d = Inception(self.inception4c.outputs, INCEPTIONS["4d"], activation)
        self.inception4e = Inception(self.inception4d.outputs, INCEPTIONS["4e"], activation)
        self.pool4 = nn.MaxPool2d(2, stride=2, ceil_mode=True)
        self.inception5a = Inception(self.inception4e.outputs, INCEPTIONS["5a"], activation)
        self.inception5b = Inception(self.inception5a.outputs, INCEPTIONS["5b"], activation)
        self.auxiliary = auxiliary
        if auxiliary:
            self.auxiliary_weight = 0.3
            drop = 0.7 if dropout is None else dropout
            self.aux1 = AuxiliaryHead(self.inception4a.outputs, classes, drop, activation)
            self.aux2 = AuxiliaryHead(self.inception4d.outputs, classes, drop, activation)
        self.average = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        drop = 0.2 if dropout is None else dropout
        self.dropout = nn.Dropout(drop) if drop else nn.Identity()
        self.output = nn.Linear(self.inception5b.outputs, classes)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                nn.init.trunc_normal_(layer.weight, std=0.01)

    def forward(self, x: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        x = self.pool1(self.conv1(x))
        x = self.pool2(self.conv3(self.conv2(x)))
        x = self.pool3(self.inception3b(self.inception3a(x)))
        early = self.inception4a(x)
        late = self.inception4d(self.inception4c(self.inception4b(early)))
        x = self.pool4(self.inception4e(late))
        x = self.inception5b(self.inception5a(x))
        main: torch.Tensor = self.output(self.dropout(self.flatten(self.average(x))))
        if self.training and self.auxiliary:
            return main, self.aux1(early), self.aux2(late)
        return main
