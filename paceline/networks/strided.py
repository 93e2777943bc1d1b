"""Convolutions that halve an image's sides step by step, and transposed ones that double them back.

A kernel of 4 with a stride of 2 and a padding of 1 halves a side, rounding down; transposed, it doubles it exactly, and
the padding of its output adds what the rounding took.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import pairwise

from torch import nn

KERNEL, STRIDE, PADDING = 4, 2, 1
Sides = tuple[int, int]
MakeLayer = Callable[[int], nn.Module | None]
"""From a number of channels to a layer, or None for none."""


def sides_of(shape: Sequence[int], steps: int) -> list[Sides]:
    """Height and width before every step that halves them, and after the last."""
    _, height, width = shape
    return [(height >> step, width >> step) for step in range(steps + 1)]


def halving(channels: Sequence[int], between: Sequence[tuple[str, MakeLayer]]) -> OrderedDict[str, nn.Module]:
    """`conv1`, `conv2`, ..., each followed by the layers of `between`, which are numbered likewise."""
    parts: OrderedDict[str, nn.Module] = OrderedDict()
    for number, (before, after) in enumerate(pairwise(channels), start=1):
        parts[f"conv{number}"] = nn.Conv2d(before, after, KERNEL, STRIDE, PADDING)
        _add(parts, number, after, between)
    return parts


def doubling_layers(
    channels: Sequence[int], sides: Sequence[Sides], between: Sequence[tuple[str, MakeLayer]]
) -> OrderedDict[str, nn.Module]:
    """`deconv1`, `deconv2`, ..., from the last of `sides` up to the first; the last layer is `output`."""
    parts: OrderedDict[str, nn.Module] = OrderedDict()
    last = len(channels) - 1
    for number, (before, after) in enumerate(pairwise(channels), start=1):
        height, width = sides[last - number]
        name = "output" if number == last else f"deconv{number}"
        parts[name] = nn.ConvTranspose2d(before, after, KERNEL, STRIDE, PADDING, (height % STRIDE, width % STRIDE))
        if number < last:
            _add(parts, number, after, between)
    return parts


def _add(
    parts: OrderedDict[str, nn.Module], number: int, channels: int, between: Sequence[tuple[str, MakeLayer]]
) -> None:
    for name, make in between:
        layer = make(channels)
        if layer is not None:
            parts[f"{name}{number}"] = layer
