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


def reach(box: Box, size: int) -> int:
    """How many rows beyond its box a sample depends on."""
    return math.ceil(max(1.0, (box[3] - box[1]) / size)) + 1


def resample(pixels: npt.NDArray[Any], box: Box, size: int) -> npt.NDArray[Any]:
    """Bytes [height, width, 3] to [size, size, 3]."""
    first = max(0, math.floor(box[1]) - reach(box, size))
    rows = pixels[first : math.ceil(box[3]) + reach(box, size)]
    left, upper, right, lower = box[0], box[1] - first, box[2], box[3] - first
    if Resizer is None:
        whole = Image.fromarray(rows)
        return np.asarray(whole.resize((size, size), Image.Resampling.BILINEAR, box=(left, upper, right, lower)))
    sample = ImageData(size, size, PixelType.U8x3)
    options = ResizeOptions(
        resize_alg=ResizeAlg.convolution(FilterType.bilinear),
        crop_box=CropBox(left, upper, right - left, lower - upper),
    )
    Resizer().resize(ImageData(rows.shape[1], rows.shape[0], PixelType.U8x3, rows.tobytes()), sample, options)
    return np.frombuffer(sample.get_buffer(), dtype=np.uint8).reshape(size, size, 3)
