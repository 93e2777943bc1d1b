"""VGG, configurations A and D (Simonyan & Zisserman 2014), as torchvision has them."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from paceline.networks.activation import activation_layer
from paceline.networks.checks import image_shape

AVERAGED = 7  # side of the feature map at fc1

# The channels of each group of convolutions; a pool halves the image after every group.
GROUPS_A = ((64,), (128,), (256, 256), (512, 512), (512, 512))
GROUPS_D = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


def vgg11(
    shape: tuple[int, ...], classes: int, *, dropout: float | None = None, activation: str | None = None
) -> nn.Sequential:
    return _vgg("vgg11", GROUPS_A, shape, classes, dropout, activation)


def vgg16(
    shape: tuple[int, ...], classes: int, *, dropout: float | None = None, activation: str | None = None
) -> nn.Sequential:
    return _vgg("vgg16", GROUPS_D, shape, classes, dropout, activation)


def _vgg(
    network_name: str,
    groups: tuple[tuple[int, ...], ...],
    shape: tuple[int, ...],
    classes: int,
    dropout: float | None,
    activation: str | None,
) -> nn.Sequential:
    inputs, height, width = image_shape(network_name, shape, at_least=2 ** len(groups))
    drop = 0.5 if dropout is None else dropout
    name = activation or "relu"

    parts: OrderedDict[str, nn.Module] = OrderedDict()
    number = 0
    for group, channels_of_group in enumerate(groups, start=1):
        for channels in channels_of_group:
            number += 1
            parts[f"conv{number}"] = nn.Conv2d(inputs, channels, 3, padding=1)
            parts[f"activation{number}"] = activation_layer(name, inplace=True)
            inputs = channels
        parts[f"pool{group}"] = nn.MaxPool2d(2)
    if (height // 2 ** len(groups), width // 2 ** len(groups)) != (AVERAGED, AVERAGED):
        parts["average"] = nn.AdaptiveAvgPool2d(AVERAGED)
    parts["flatten"] = nn.Flatten()
    units = inputs * AVERAGED * AVERAGED
    for fc in (1, 2):
        parts[f"fc{fc}"] = nn.Linear(units, 4096)
        parts[f"activation{number + fc}"] = activation_layer(name, inplace=True)
        if drop:
            parts[f"dropout{fc}"] = nn.Dropout(drop)
        units = 4096
    parts["output"] = nn.Linear(units, classes)
    network = nn.Sequential(parts)
    _initialise(network)
    return network


def _initialise(network: nn.Sequential) -> None:
    for layer in network:
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, std=0.01)
        else:
            continue
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
