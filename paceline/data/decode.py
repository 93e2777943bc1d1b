"""From an image file to bytes [3, size, size]: cut out, scaled, perhaps mirrored. No PyTorch here.

Training cuts at random as "Going deeper with convolutions" (Szegedy et al. 2014); testing takes the centre.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

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


def _centred(width: int, height: int, w: float, h: float) -> Box:
    left, upper = (width - w) / 2, (height - h) / 2
    return (left, upper, left + w, upper + h)


@dataclass(frozen=True)
class Decoder:
    """How the samples of one pass are made from files."""

    size: int
    seed: int
    training: bool

    def decode(self, path: str, epoch: int, index: int, out: npt.NDArray[Any]) -> None:
        """Writes the sample into `out`, bytes [3, size, size]."""
        with Image.open(path) as image:
            width, height = image.size
            view = random_view(width, height, self.seed, epoch, index) if self.training else centre_view(width, height)
            box = self._shrink_while_decoding(image, view.box)
            whole = image if image.mode in ("RGB", "L") else to_rgb(image)
            size = (self.size, self.size)
            sample = whole.resize(size, Image.Resampling.BILINEAR, box=box, reducing_gap=2.0)
        pixels = np.asarray(sample if sample.mode == "RGB" else sample.convert("RGB"))
        if view.mirrored:
            pixels = pixels[:, ::-1]
        np.copyto(out, pixels.transpose(2, 0, 1))

    def _shrink_while_decoding(self, image: Image.Image, box: Box) -> Box:
        """A JPEG is decoded at a half, quarter or eighth for less work, if that is enough for the sample."""
        width, height = image.size
        needed = (
            math.ceil(width * self.size / (box[2] - box[0])),
            math.ceil(height * self.size / (box[3] - box[1])),
        )
        if needed[0] * 2 > width or needed[1] * 2 > height:
            return box
        drafted = image.draft(None, needed)
        if drafted is None:
            return box
        # Not the ratio of the sizes: a shrunk side is rounded up, and its last pixel is only partly filled.
        _, (_, _, right, lower) = drafted
        across, down = right / width, lower / height
        return (box[0] * across, box[1] * down, box[2] * across, box[3] * down)


def to_rgb(image: Image.Image) -> Image.Image:
    """Any mode as RGB. Sixteen bits keep their upper eight, which PIL would clip instead."""
    if image.mode.startswith("I"):
        values = np.asarray(image).astype(np.int64)
        return Image.fromarray((values.clip(0, 65535) >> 8).astype(np.uint8)).convert("RGB")
    if image.mode == "P" and "transparency" in image.info:
        return image.convert("RGBA").convert("RGB")
    return image.convert("RGB")
