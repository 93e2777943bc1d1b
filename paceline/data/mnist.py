"""MNIST and Fashion-MNIST, read from their IDX files (http://yann.lecun.com/exdb/mnist, "file formats")."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from paceline.data.cache import Progress
from paceline.data.dataset import Arrays, Dataset, unit_interval
from paceline.data.published import obtain
from paceline.data.source import Source
from paceline.data.well_known import WELL_KNOWN
from paceline.errors import DataError


def load(source: Source, cache: Path, progress: Progress | None) -> Dataset:
    source.no_argument()
    source.allow("path")
    published = WELL_KNOWN[source.name]
    given = Path(source.options["path"]).expanduser() if "path" in source.options else None
    train_x, train_y, test_x, test_y = obtain(published, cache, given=given, progress=progress)
    return Dataset(
        name=source.name,
        kind="image",
        shape=published.shape,
        classes=published.classes,
        train=_part(train_x, train_y),
        test=_part(test_x, test_y),
        prepare=unit_interval,
    )


def _part(images: Path, labels: Path) -> Arrays:
    pixels = torch.from_numpy(read_idx(images)).unsqueeze(1)
    return Arrays(pixels, torch.from_numpy(read_idx(labels).astype(np.int64)))


def read_idx(path: Path) -> npt.NDArray[Any]:
    """An IDX file of bytes, mapped copy-on-write: two zeros, type 8, the number of dimensions, the sizes."""
    with path.open("rb") as stream:
        start = stream.read(4)
        if len(start) < 4 or start[:3] != b"\x00\x00\x08":
            raise DataError(f"{path} is not an IDX file of bytes; fetch it again")
        sizes = stream.read(4 * start[3])
    shape = struct.unpack(f">{start[3]}I", sizes)
    return np.memmap(path, dtype=np.uint8, mode="c", offset=4 + len(sizes), shape=shape)
