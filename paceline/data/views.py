"""Which part of an image a sample shows. No PyTorch here.

Training cuts at random as "Going deeper with convolutions" (Szegedy et al. 2014); testing takes the centre.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

Box = tuple[float, float, float, float]
"""Left, upper, right, lower, in pixels of the whole image."""

_AREA = (0.08, 1.0)
_RATIO = (3 / 4, 4 / 3)
_TRIES = 10
_TEST_MARGIN = 224 / 256


@dataclass(frozen=True)
class Crop:
    """Which part of an image a sample shows, and whether mirrored."""

    box: Box
    mirrored: bool


def random_view(width: int, height: int, seed: int, epoch: int, index: int) -> Crop:
    """A pure function of its arguments, so any process can repeat any sample of any epoch."""
    sequence = np.random.SeedSequence((seed & (1 << 64) - 1, epoch, index))
    draw = np.random.Generator(np.random.PCG64(sequence)).random
    mirrored = bool(draw() < 0.5)
    for _ in range(_TRIES):
        area = width * height * (_AREA[0] + (_AREA[1] - _AREA[0]) * draw())
        low, high = math.log(_RATIO[0]), math.log(_RATIO[1])
        ratio = math.exp(low + (high - low) * draw())
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            left, upper = int(draw() * (width - w + 1)), int(draw() * (height - h + 1))
            return Crop((left, upper, left + w, upper + h), mirrored)
    # A very long or tall image: the largest centred cut of an allowed ratio.
    w = min(width, max(1, round(height * _RATIO[1])))
    h = min(height, max(1, round(width / _RATIO[0])))
    return Crop(_centred(width, height, w, h), mirrored)


def centre_view(width: int, height: int) -> Crop:
    """The short side scaled to size * 256 / 224 and the centre cut out, in one go."""
    side = min(width, height) * _TEST_MARGIN
    return Crop(_centred(width, height, side, side), mirrored=False)


def shortest_side(width: int, height: int) -> float:
    """The shortest side that any view of an image of this size has."""
    smallest_cut = math.sqrt(width * height * _AREA[0] * min(_RATIO[0], 1 / _RATIO[1]))
    return min(smallest_cut - 1, min(width, height) * _TEST_MARGIN)


def _centred(width: int, height: int, w: float, h: float) -> Box:
    left, upper = (width - w) / 2, (height - h) / 2
    return (left, upper, left + w, upper + h)
