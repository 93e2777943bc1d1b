"""AlexNet in its form for one device (Krizhevsky 2014, "One weird trick"), as torchvision has it."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from paceline.networks.activation import activation_layer
from paceline.networks.checks import image_shape

AVERAGED = 6  # side of the feature map at fc1


def alexnet(
    shape: tuple[int, ...], classes: int, *, dropout: float | None = None, activation: str | None = None
) -> nn.Sequential:
    channels, height, width = image_shape("alexnet", shape, at_least=63)
    drop = 0.5 if dropout is None else dropout
    name = activation or "relu"

    convolutions = (
        nn.Conv2d(channels, 64, 11, stride=4, padding=2),
        nn.Conv2d(64, 192, 5, padding=2),
        nn.Conv2d(192, 384, 3, padding=1),
        nn.Conv2d(384, 256, 3, padding=1),
        nn.Conv2d(256, 256, 3, padding=1),
    )
    parts: OrderedDict[str, nn.Module] = OrderedDict()
    for number, convolution in enumerate(convolutions, start=1):
        parts[f"conv{number}"] = convolution
        parts[f"activation{number}"] = activation_layer(name, inplace=True)
        if number in (1, 2, 5):
            parts[f"pool{number}"] = nn.MaxPool2d(3, stride=2)
    if (_pooled(height), _pooled(width)) != (AVERAGED, AVERAGED):
        parts["average"] = nn.AdaptiveAvgPool2d(AVERAGED)
    parts["flatten"] = nn.Flatten()
    if drop:
        parts["dropout1"] = nn.Dropout(drop)
    parts["fc1"] = nn.Linear(256 * AVERAGED * AVERAGED, 4096)
    parts["activation6"] = activation_layer(name, inplace=True)
    if drop:
        parts["dropout2"] = nn.Dropout(drop)
    parts["fc2"] = nn.Linear(4096, 4096)
    parts["activation7"] = activation_layer(name, inplace=True)
    parts["output"] = nn.Linear(4096, classes)
    return nn.Sequential(parts)


def _pooled(size: int) -> int:
    """The side of the last feature map: conv1 has stride 4, then three 3 x 3 pools have stride 2."""
    side = (size + 2 * 2 - 11) // 4 + 1
    for _ in range(3):
        side = (side - 3) // 2 + 1
    return side
