"""Samples the operation sizes that a calibration times: random, over the range found in networks."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import log

from paceline.cost.families import FAMILIES, POINTWISE, Sizes


@dataclass(frozen=True)
class Limits:
    """The largest operation to time; slow devices have smaller limits."""

    flops: float
    elements: float
    larger: float = 0.0
    """Share of the trials that are the larger of two draws: on a GPU networks spend their time in large operations."""
    smaller: float = 0.0
    """Share of the trials that are within a part of the limits: one thread of a CPU mostly computes small networks."""


SMALLER = 32
"""The limits divided by those of small trials."""


def sample_shape(kind: str, rng: random.Random, limits: Limits) -> Sizes:
    """Sizes of one operation of `kind` within `limits`."""
    if limits.smaller and rng.random() < limits.smaller:
        limits = replace(limits, flops=limits.flops / SMALLER, elements=limits.elements / SMALLER)
    draws = [_draw(kind, rng, limits) for _ in range(2 if rng.random() < limits.larger else 1)]
    return max(draws, key=lambda sizes: _effort(kind, sizes, limits))


def _draw(kind: str, rng: random.Random, limits: Limits) -> Sizes:
    for _ in range(10_000):
        sizes = _SAMPLERS[kind](rng)
        if _effort(kind, sizes, limits) <= 1.0:
            return sizes
    raise AssertionError(f"no sizes of {kind} within {limits}")


def _effort(kind: str, sizes: Sizes, limits: Limits) -> float:
    """Share of the limits that an operation takes."""
    flops, elements = FAMILIES[kind].work_of(sizes)
    return max(flops / limits.flops, elements / limits.elements)


def _between(rng: random.Random, low: float, high: float) -> int:
    """Log-uniform, and half of the time rounded to a power of two, as in real networks."""
    value = round(low * (high / low) ** rng.random())
    if rng.random() < 0.5:
        value = 1 << max(0, round(log(value, 2)))
    return int(min(max(value, low), high))


def _channels(rng: random.Random) -> int:
    if rng.random() < 0.08:
        return rng.choice((1, 3))
    value = _between(rng, 8, 1024)
    return value if rng.random() < 0.15 else max(8, value // 8 * 8)


def _matmul(rng: random.Random) -> Sizes:
    if rng.random() < LINEAR_SHARE:
        return _linear(rng)
    batch = 1 if rng.random() < 0.5 else _between(rng, 2, 256)
    m, n, k = _between(rng, 1, 65536), _between(rng, 2, 65536 if rng.random() < 0.1 else 8192), _between(rng, 2, 16384)
    layout = rng.randrange(3)
    return batch, m, n, k, layout, int(layout == 0 and batch == 1)


LINEAR_SHARE = 0.7
"""Of the products: those of a linear layer. Of three independent random sizes one is mostly too small to matter."""


def _linear(rng: random.Random) -> Sizes:
    """A linear layer's output, or the gradient of its input or of its weights."""
    rows, inputs, outputs = _between(rng, 16, 65536), _features(rng), _features(rng)
    if rng.random() < 0.1:  # a last layer has as many outputs as there are classes or words
        outputs = _between(rng, 2, 65536)
    return (
        (1, rows, outputs, inputs, 0, int(rng.random() < 0.7)),
        (1, rows, inputs, outputs, 1, 0),
        (1, outputs, inputs, rows, 2, 0),
    )[rng.randrange(3)]


def _features(rng: random.Random) -> int:
    value = _between(rng, 16, 8192)
    return value if rng.random() < 0.1 else max(16, value // 16 * 16)


def _patches(rng: random.Random) -> Sizes:
    """A convolution that cuts an image, or a feature map, into patches: its stride is its size."""
    size, sides = rng.choice((2, 2, 4, 8, 14, 16, 16)), _between(rng, 4, 32)
    inputs = 3 if size > 4 or rng.random() < 0.3 else _channels_at(rng, size * sides)
    side = size * sides
    return _between(rng, 1, 256), inputs, side, side, _between(rng, 32, 1024), size, size, sides, sides, 1, 1


def _sequence(rng: random.Random) -> Sizes:
    """A convolution over a sequence: an image of height one."""
    size, stride = rng.choice((1, 2, 3, 3, 3, 5, 7)), rng.choice((1, 1, 1, 2))
    length = _between(rng, max(16, 2 * size), 16384)
    c, k = (max(8, _between(rng, 8, 1024) // 8 * 8) for _ in range(2))
    groups = 1
    if rng.random() < 0.2:
        groups, k = c, c
    out = (length + 2 * (size // 2) - size) // stride + 1
    return _between(rng, 1, 256), c, 1, length, k, 1, size, 1, out, groups, rng.randrange(2)


def _convolution(rng: random.Random) -> Sizes:
    kind = rng.choices(("dense", "first", "depthwise", "grouped", "patches", "sequence"), (14, 4, 4, 1, 1, 2))[0]
    if kind == "patches":
        return _patches(rng)
    if kind == "first":
        return _first(rng)
    if kind == "sequence":
        return _sequence(rng)
    size = rng.choices((1, 3, 5, 7, 11), (6, 8, 4, 2, 1))[0] if kind == "dense" else rng.choice((3, 3, 5, 7))
    stride = rng.choices((1, 2, 4), _STRIDES[size])[0]
    h = _between(rng, max(4, size, 2 * stride), 256)
    c, k, groups = _channels_at(rng, h), max(4, _channels_at(rng, h)), 1
    if kind == "depthwise":
        groups, k = c, c
    elif kind == "grouped":
        groups = 1 << rng.randrange(1, 6)
        c, k = (groups * max(1, width // groups) for width in (c, k))
    p = (h + 2 * (size // 2) - size) // stride + 1
    return _between(rng, 1, 256), c, h, h, k, size, size, p, p, groups, rng.randrange(2)


def _first(rng: random.Random) -> Sizes:
    """A network's first convolution: its input is a batch of grey or coloured samples."""
    size, stride = rng.choice((3, 5, 7, 11)), rng.choice((1, 1, 2, 4))
    side = _between(rng, max(16, 2 * size), 256)
    p = (side + 2 * (size // 2) - size) // stride + 1
    batch, inputs, outputs = _between(rng, 1, 256), rng.choice((1, 3)), _between(rng, 4, 128)
    return batch, inputs, side, side, outputs, size, size, p, p, 1, rng.randrange(2)


# Weights of strides 1, 2 and 4 by kernel size: large kernels are used in first layers.
_STRIDES = {1: (3, 1, 0), 3: (5, 2, 0), 5: (5, 2, 0), 7: (2, 3, 1), 11: (1, 1, 2)}


def _channels_at(rng: random.Random, side: int) -> int:
    """Networks get wider as their feature maps shrink: channels times side is roughly constant."""
    if rng.random() < 0.25:
        return _channels(rng)
    value = min(2048.0, max(4.0, 3000 / side * 8 ** rng.uniform(-1.0, 1.0)))
    return 1 << round(log(value, 2)) if rng.random() < 0.6 else max(4, int(value) // 4 * 4)


def _norm(rng: random.Random) -> Sizes:
    return _between(rng, 1, 256), _channels(rng), _between(rng, 2, 128) ** 2


def _rows(rng: random.Random) -> Sizes:
    return _between(rng, 1, 1 << 20), _between(rng, 2, 65536 if rng.random() < 0.15 else 4096)


def _planes(rng: random.Random, most: int) -> int:
    """Images times channels; networks have channels in multiples of 8."""
    value = _between(rng, 8, most)
    return value if rng.random() < 0.1 else value // 8 * 8


def _pool(rng: random.Random) -> Sizes:
    window = rng.choice((2, 2, 3, 3, 3))
    stride = rng.choice((1, 2, 2, 2))
    h = _between(rng, 4, 256)
    p = (h - window) // stride + 1
    return _planes(rng, 32768), h, h, p, p, window * window


def _average_pool(rng: random.Random) -> Sizes:
    p = rng.choice((2, 2, 4, 7))  # PyTorch computes pooling to one pixel as a mean
    window = _between(rng, 1, 16)
    return _planes(rng, 65536), p * window, p * window, p, p, window * window


def _reduce(rng: random.Random) -> Sizes:
    if rng.random() < 0.7:  # the gradient of a bias: a sum over rows
        return 1, _between(rng, 2, 65536), _between(rng, 2, 4096)
    if rng.random() < 0.5:  # the mean of an image with the channels last
        return _between(rng, 1, 256), _between(rng, 4, 4096), _channels(rng)
    return _between(rng, 8, 65536), _between(rng, 2, 4096), 1


def _lookup(rng: random.Random) -> Sizes:
    return _between(rng, 1, 65536), _between(rng, 8, 1024), _between(rng, 16, 50000)


def _recurrent(rng: random.Random) -> Sizes:
    return _between(rng, 4, 256), _between(rng, 1, 512), _between(rng, 8, 512), _between(rng, 16, 1024)


def _attention(rng: random.Random) -> Sizes:
    length = _between(rng, 16, 4096)
    return _between(rng, 1, 2048), length, length, rng.choice((16, 32, 64, 64, 64, 128)), rng.randrange(2)


def _elements(rng: random.Random) -> Sizes:
    return (_between(rng, 64, 1 << 28),)


_SAMPLERS: dict[str, Callable[[random.Random], Sizes]] = {
    "matmul": _matmul,
    "convolution": _convolution,
    "batch_norm": _norm,
    "layer_norm": _rows,
    "softmax": _rows,
    "max_pool": _pool,
    "average_pool": _average_pool,
    "reduce": _reduce,
    "embedding": _lookup,
    "recurrent": _recurrent,
    "attention": _attention,
    **dict.fromkeys(POINTWISE, _elements),
}

# Trials per kind. Kinds that dominate training time and depend on many sizes get the most.
TRIALS = {
    "convolution": 400, "matmul": 500, "batch_norm": 80, "layer_norm": 50, "softmax": 40, "max_pool": 80,
    "average_pool": 30, "reduce": 50, "embedding": 30, "recurrent": 50, "attention": 80,
    **dict.fromkeys(POINTWISE, 20),
}  # fmt: skip
