"""Draws the sizes that a calibration tries: at random, over the range that networks have, none taken from one."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from math import log

from paceline.cost.families import FAMILIES, POINTWISE, Sizes


@dataclass(frozen=True)
class Limits:
    """The most that one operation may take: on a slow device less can be tried."""

    flops: float
    elements: float


def draw(kind: str, chance: random.Random, limits: Limits) -> Sizes:
    """Sizes of one operation of `kind` within `limits`."""
    for _ in range(10_000):
        sizes = _DRAWN[kind](chance)
        flops, elements = FAMILIES[kind].work_of(sizes)
        if flops <= limits.flops and elements <= limits.elements:
            return sizes
    raise AssertionError(f"no sizes of {kind} within {limits}")


def _between(chance: random.Random, low: float, high: float) -> int:
    """Log-uniform, and every other time a power of two, as people choose."""
    value = round(low * (high / low) ** chance.random())
    if chance.random() < 0.5:
        value = 1 << max(0, round(log(value, 2)))
    return int(min(max(value, low), high))


def _channels(chance: random.Random) -> int:
    if chance.random() < 0.08:
        return chance.choice((1, 3))
    value = _between(chance, 8, 1024)
    return value if chance.random() < 0.15 else max(8, value // 8 * 8)


def _matmul(chance: random.Random) -> Sizes:
    batch = 1 if chance.random() < 0.85 else _between(chance, 2, 256)
    m, n, k = _between(chance, 1, 16384), _between(chance, 2, 8192), _between(chance, 2, 16384)
    layout = chance.randrange(3)
    return batch, m, n, k, layout, int(layout == 0 and batch == 1)


def _convolution(chance: random.Random) -> Sizes:
    size = chance.choices((1, 3, 5, 7, 11), (6, 8, 4, 2, 1))[0]
    stride = chance.choices((1, 2, 4), _STRIDES[size])[0]
    h = _between(chance, max(4, size, 2 * stride), 256)
    c, k = _channels_at(chance, h), max(4, _channels_at(chance, h))
    groups = 1
    if chance.random() < 0.06 and c > 1:
        groups, k = c, c
    p = (h + 2 * (size // 2) - size) // stride + 1
    return _between(chance, 1, 256), c, h, h, k, size, size, p, p, groups, chance.randrange(2)


# Of a window, how often it moves by 1, 2 and 4 pixels: the larger ones stand at a network's entrance.
_STRIDES = {1: (3, 1, 0), 3: (5, 2, 0), 5: (5, 2, 0), 7: (2, 3, 1), 11: (1, 1, 2)}


def _channels_at(chance: random.Random, side: int) -> int:
    """Networks widen as their images shrink: about 2,000 in all of one row and its channels, give or take."""
    if chance.random() < 0.25:
        return _channels(chance)
    value = min(2048.0, max(4.0, 3000 / side * 8 ** chance.uniform(-1.0, 1.0)))
    return 1 << round(log(value, 2)) if chance.random() < 0.6 else max(4, int(value) // 4 * 4)


def _norm(chance: random.Random) -> Sizes:
    return _between(chance, 1, 256), _channels(chance), _between(chance, 2, 128) ** 2


def _rows(chance: random.Random) -> Sizes:
    return _between(chance, 1, 65536), _between(chance, 2, 4096)


def _pool(chance: random.Random) -> Sizes:
    window = chance.choice((2, 2, 3, 3, 3))
    stride = chance.choice((1, 2, 2, 2))
    h = _between(chance, 4, 256)
    p = (h - window) // stride + 1
    return _between(chance, 8, 32768), h, h, p, p, window * window


def _average_pool(chance: random.Random) -> Sizes:
    p = chance.choice((2, 2, 4, 7))  # a pool into one pixel is a mean, which PyTorch takes as such
    window = _between(chance, 1, 16)
    return _between(chance, 8, 65536), p * window, p * window, p, p, window * window


def _reduce(chance: random.Random) -> Sizes:
    if chance.random() < 0.7:  # a bias's gradient: over the rows
        return 1, _between(chance, 2, 65536), _between(chance, 2, 4096)
    return _between(chance, 8, 65536), _between(chance, 2, 4096), 1


def _lookup(chance: random.Random) -> Sizes:
    return _between(chance, 1, 65536), _between(chance, 8, 1024), _between(chance, 16, 50000)


def _recurrent(chance: random.Random) -> Sizes:
    return _between(chance, 4, 256), _between(chance, 1, 512), _between(chance, 8, 512), _between(chance, 16, 1024)


def _attention(chance: random.Random) -> Sizes:
    length = _between(chance, 16, 1024)
    return _between(chance, 1, 2048), length, length, chance.choice((16, 32, 64, 128))


def _elements(chance: random.Random) -> Sizes:
    return (_between(chance, 64, 1 << 27),)


_DRAWN: dict[str, Callable[[random.Random], Sizes]] = {
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

# How many sizes of each a calibration tries. Those that most of the time goes to, and that depend on most, get most.
TRIALS = {
    "convolution": 450, "matmul": 300, "batch_norm": 50, "layer_norm": 40, "softmax": 30, "max_pool": 50,
    "average_pool": 30, "reduce": 50, "embedding": 30, "recurrent": 50, "attention": 40,
    **dict.fromkeys(POINTWISE, 20),
}  # fmt: skip
