"""LeNet-5 (LeCun et al. 1998), with ReLU and max pooling instead of tanh and trained average pooling."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from paceline.networks.activation import activation_layer
from paceline.networks.checks import image_shape

PAPER_SIZE, WINDOW = 32, 5


def lenet5(
    shape: tuple[int, ...], classes: int, *, dropout: float | None = None, activation: str | None = None
) -> nn.Sequential:
    channels, height, width = image_shape("lenet5", shape)
    # The paper pads the 28 x 28 digits to 32 x 32; smaller images are padded likewise.
    top, left = _padding(height), _padding(width)
    features = 16 * _pooled(height + 2 * top) * _pooled(width + 2 * left)
    name = activation or "relu"

    parts: OrderedDict[str, nn.Module] = OrderedDict()
    if max(top, left) > WINDOW // 2:
        # PyTorch takes up to four times as long for the gradient of a convolution that pads by more than its window.
        parts["padding"] = nn.ZeroPad2d((left, left, top, top))
        top = left = 0
    parts["conv1"] = nn.Conv2d(channels, 6, WINDOW, padding=(top, left))
    parts["activation1"] = activation_layer(name)
    parts["pool1"] = nn.MaxPool2d(2)
    parts["conv2"] = nn.Conv2d(6, 16, WINDOW)
    parts["activation2"] = activation_layer(name)
    parts["pool2"] = nn.MaxPool2d(2)
    parts["flatten"] = nn.Flatten()
    parts["fc1"] = nn.Linear(features, 120)
    parts["activation3"] = activation_layer(name)
    if dropout:
        parts["dropout1"] = nn.Dropout(dropout)
    parts["fc2"] = nn.Linear(120, 84)
    parts["activation4"] = activation_layer(name)
    if dropout:
        parts["dropout2"] = nn.Dropout(dropout)
    parts["output"] = nn.Linear(84, classes)
    return nn.Sequential(parts)


def _padding(size: int) -> int:
    return max(0, (PAPER_SIZE - size + 1) // 2)


def _pooled(size: int) -> int:
    """The side after two 5 x 5 convolutions, each followed by 2 x 2 pooling."""
    return ((size - 4) // 2 - 4) // 2
