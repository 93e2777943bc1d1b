"""Plain JPEG files through libjpeg-turbo (`simplejpeg`): smaller where that is enough, and only the rows needed.

Plain means 8 bits and three colours, baseline or progressive, which nearly all photographs are. Pillow reads the rest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
from PIL import Image

try:
    import simplejpeg
except ImportError:  # where it has no wheel; Pillow reads everything then
    simplejpeg = None

_START, _END = b"\xff\xd8", b"\xff\xd9"
_FILL, _SCAN = 0xFF, 0xDA
_SEQUENTIAL, _PROGRESSIVE = (0xC0, 0xC1), 0xC2
_OTHER_FRAMES = (0xC3, 0xC5, 0xC6, 0xC7, 0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF)
_COLOURS = 3
_EIGHTHS = (1, 2, 4)
"""The sizes for which libjpeg-turbo has vector instructions: 3 takes longer than 4, and 5 to 7 longer than 8."""
_EDGE_ROWS = 4
"""The last rows of a cut image have colours without their lower neighbour."""


def eighths_for(width: float, height: float, size: int) -> int:
    """The smallest decoded size, in eighths, that still has a pixel for every pixel of a sample of this cut."""
    return next((n for n in _EIGHTHS if min(width, height) * n >= 8 * size), 8)


@dataclass(frozen=True, eq=False)
class PlainJpeg:
    """A file whose header was read."""

    data: bytes
    width: int
    height: int
    _height_at: int
    """Where the header has the height."""
    _one_scan: bool
    """Whether the rows follow one another in the file."""

    def decode(self, eighths: int = 8, rows: float = math.inf) -> npt.NDArray[Any]:
        """Bytes [height, width, 3], at `eighths` of the size; at least the first `rows` of them.

        Raises `ValueError` for a damaged file.
        """
        data, height = self.data, self.height
        wanted = math.ceil(min(rows, self.height) * 8 / eighths) + _EDGE_ROWS
        if self._one_scan and wanted < height:
            # Decoding ends after the last row that the header promises, so the rest costs nothing.
            height, at = wanted, self._height_at
            data = data[:at] + height.to_bytes(2, "big") + data[at + 2 :]
        least = {} if eighths == 8 else {"min_height": _part(height, eighths), "min_width": _part(self.width, eighths)}
        # Like Pillow, not strict: a picture with a small fault is still a picture.
        return simplejpeg.decode_jpeg(data, strict=False, **least)  # type: ignore[no-any-return]


def _part(side: int, eighths: int) -> int:
    return -(-side * eighths // 8)


def plain_jpeg(data: bytes) -> PlainJpeg | None:
    """The file, or None for what Pillow should read, or refuse."""
    if simplejpeg is None or not data.startswith(_START) or not data.endswith(_END):
        return None
    at, frame = len(_START), None
    while at + 10 < len(data) and data[at] == _FILL:
        marker = data[at + 1]
        if marker == _FILL:
            at += 1
            continue
        if marker == _SCAN:
            return _plain(data, frame, scanned=data[at + 4])
        if marker in (*_SEQUENTIAL, _PROGRESSIVE):
            frame = at
        elif marker in _OTHER_FRAMES:
            return None
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return None


def _plain(data: bytes, frame: int | None, scanned: int) -> PlainJpeg | None:
    """`frame` is where the frame header begins, `scanned` the number of colours in the first scan."""
    if frame is None:
        return None
    bits, colours = data[frame + 4], data[frame + 9]
    height, width = (int.from_bytes(data[frame + i : frame + i + 2], "big") for i in (5, 7))
    if bits != 8 or colours != _COLOURS or not width or not height:
        return None
    if width * height > (Image.MAX_IMAGE_PIXELS or math.inf):
        return None  # Pillow warns of it or refuses it
    return PlainJpeg(data, width, height, frame + 5, data[frame + 1] in _SEQUENTIAL and scanned == colours)
