"""Cuts a box out of decoded pixels and scales it: `cykooz_resizer` with vector instructions, else Pillow.

Both filter alike (a triangle, widened where the image shrinks): no pixel differs by more than 1 of 255.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from paceline.data.views import Box

try:
    from cykooz_resizer import CropBox, FilterType, ImageData, PixelType, ResizeAlg, ResizeOptions, Resizer
except ImportError:  # where it has no wheel
    Resizer = None


def needed(start: float, stop: float, size: int) -> tuple[int, int]:
    """The pixels, along one side, that a sample of this cut depends on: a few beyond its edges."""
    beyond = math.ceil(max(1.0, (stop - start) / size)) + 1
    return max(0, math.floor(start) - beyond), math.ceil(stop) + beyond


def resample(pixels: npt.NDArray[Any], box: Box, size: int) -> npt.NDArray[Any]:
    """Bytes [height, width, 3] to [size, size, 3]."""
    (column, last_column), (row, last_row) = needed(box[0], box[2], size), needed(box[1], box[3], size)
    part = pixels[row:last_row, column:last_column]
    left, upper, right, lower = box[0] - column, box[1] - row, box[2] - column, box[3] - row
    if Resizer is None:
        whole = Image.fromarray(part)
        return np.asarray(whole.resize((size, size), Image.Resampling.BILINEAR, box=(left, upper, right, lower)))
    sample = ImageData(size, size, PixelType.U8x3)
    options = ResizeOptions(
        resize_alg=ResizeAlg.convolution(FilterType.bilinear),
        crop_box=CropBox(left, upper, right - left, lower - upper),
    )
    Resizer().resize(ImageData(part.shape[1], part.shape[0], PixelType.U8x3, part.tobytes()), sample, options)
    return np.frombuffer(sample.get_buffer(), dtype=np.uint8).reshape(size, size, 3)
