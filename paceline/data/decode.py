"""From an image file to bytes [3, size, size]: cut out, scaled, perhaps mirrored. No PyTorch here."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from paceline.data.decoded_cache import DecodedCache, DecodedImage
from paceline.data.jpeg import PlainJpeg, eighths_for, plain_jpeg
from paceline.data.resample import needed, resample
from paceline.data.views import Box, Crop, centre_view, random_view, shortest_side

JPEG_SUFFIXES = (".jpg", ".jpeg")


@dataclass(frozen=True)
class Decoder:
    """How the samples of one pass are made from files. Without `fast`, Pillow does all of it.

    With a cache, what a sample shows does not depend on what the cache holds: an image is always decoded as it would
    be stored.
    """

    size: int
    seed: int
    training: bool
    fast: bool = True
    cache: DecodedCache | None = None

    def decode(self, path: str, epoch: int, index: int, out: npt.NDArray[Any]) -> None:
        """Writes the sample into `out`, bytes [3, size, size]."""
        if self.cache is not None:
            view, pixels = self._from_whole(self.cache.get(path, self._whole), epoch, index)
        else:
            view, pixels = self._fast(path, epoch, index) or self._by_pillow(path, epoch, index)
        if view.mirrored:
            pixels = pixels[:, ::-1]
        np.copyto(out, pixels.transpose(2, 0, 1))

    def _view(self, width: int, height: int, epoch: int, index: int) -> Crop:
        return random_view(width, height, self.seed, epoch, index) if self.training else centre_view(width, height)

    def _plain_jpeg(self, path: str) -> PlainJpeg | None:
        if not self.fast or not path.lower().endswith(JPEG_SUFFIXES):
            return None
        with Path(path).open("rb", buffering=0) as file:
            return plain_jpeg(file.read())

    def _fast(self, path: str, epoch: int, index: int) -> tuple[Crop, npt.NDArray[Any]] | None:
        jpeg = self._plain_jpeg(path)
        if jpeg is None:
            return None
        view = self._view(jpeg.width, jpeg.height, epoch, index)
        try:
            return view, self._cut(jpeg, view.box)
        except ValueError:  # Pillow reads it after all, or has the better message
            return None

    def _cut(self, jpeg: PlainJpeg, box: Box) -> npt.NDArray[Any]:
        eighths = eighths_for(box[2] - box[0], box[3] - box[1], self.size)
        box = shrunk_box(box, eighths / 8)
        _, rows = needed(box[1], box[3], self.size)
        return resample(jpeg.decode(eighths, rows), box, self.size)

    def _from_whole(self, whole: DecodedImage, epoch: int, index: int) -> tuple[Crop, npt.NDArray[Any]]:
        view = self._view(whole.width, whole.height, epoch, index)
        return view, resample(whole.pixels, shrunk_box(view.box, whole.scale), self.size)

    def _whole(self, path: str) -> DecodedImage:
        """The whole image, smaller where no view of it needs all of its pixels."""
        jpeg = self._plain_jpeg(path)
        if jpeg is not None:
            side = shortest_side(jpeg.width, jpeg.height)
            eighths = eighths_for(side, side, self.size)
            with contextlib.suppress(ValueError):
                return DecodedImage(jpeg.decode(eighths), jpeg.width, jpeg.height, eighths / 8)
        with Image.open(path) as image:
            by = max(1, int(shortest_side(*image.size) / self.size))
            whole = to_rgb(image)
            return DecodedImage(np.asarray(whole if by == 1 else whole.reduce(by)), *image.size, 1 / by)

    def _by_pillow(self, path: str, epoch: int, index: int) -> tuple[Crop, npt.NDArray[Any]]:
        with Image.open(path) as image:
            view = self._view(*image.size, epoch, index)
            box = self._shrink_while_decoding(image, view.box)
            whole = image if image.mode in ("RGB", "L") else to_rgb(image)
            size = (self.size, self.size)
            sample = whole.resize(size, Image.Resampling.BILINEAR, box=box, reducing_gap=2.0)
        return view, np.asarray(sample if sample.mode == "RGB" else sample.convert("RGB"))

    def _shrink_while_decoding(self, image: Image.Image, box: Box) -> Box:
        """A JPEG is decoded at a half, quarter or eighth for less work, if that is enough for the sample."""
        width, height = image.size
        least = (
            math.ceil(width * self.size / (box[2] - box[0])),
            math.ceil(height * self.size / (box[3] - box[1])),
        )
        if least[0] * 2 > width or least[1] * 2 > height:
            return box
        drafted = image.draft(None, least)
        if drafted is None:
            return box
        # Not the ratio of the sizes: a shrunk side is rounded up, and its last pixel is only partly filled.
        _, (_, _, right, lower) = drafted
        across, down = right / width, lower / height
        return (box[0] * across, box[1] * down, box[2] * across, box[3] * down)


def shrunk_box(box: Box, by: float) -> Box:
    return (box[0] * by, box[1] * by, box[2] * by, box[3] * by)


def to_rgb(image: Image.Image) -> Image.Image:
    """Any mode as RGB. Sixteen bits keep their upper eight, which PIL would clip instead."""
    if image.mode.startswith("I"):
        values = np.asarray(image).astype(np.int64)
        return Image.fromarray((values.clip(0, 65535) >> 8).astype(np.uint8)).convert("RGB")
    if image.mode == "P" and "transparency" in image.info:
        return image.convert("RGBA").convert("RGB")
    return image.convert("RGB")
