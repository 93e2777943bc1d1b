"""The handwritten digits that scikit-learn brings along: 1,797 images of 8 x 8 pixels, always there."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import torch

from paceline.data.cache import Progress
from paceline.data.dataset import Arrays, Dataset
from paceline.data.source import Source
from paceline.errors import DataError


def load(source: Source, cache: Path, progress: Progress | None) -> Dataset:
    source.no_argument()
    source.allow()
    # Read as a file: importing scikit-learn would cost every process a second.
    table = np.loadtxt(bundled_file(), delimiter=",", dtype=np.uint8)
    pixels = torch.from_numpy(table[:, :64]).to(torch.float32).div_(16).reshape(-1, 1, 8, 8)
    labels = torch.from_numpy(table[:, 64].astype(np.int64))
    # Every fifth image in the order of the classes is for testing: each class is split alike.
    testing = torch.zeros(len(labels), dtype=torch.bool)
    testing[torch.argsort(labels, stable=True)[::5]] = True
    return Dataset(
        name="digits",
        kind="image",
        shape=(1, 8, 8),
        classes=tuple("0123456789"),
        train=Arrays(pixels[~testing], labels[~testing]),
        test=Arrays(pixels[testing], labels[testing]),
    )


def bundled_file() -> Path:
    found = importlib.util.find_spec("sklearn")
    if found is None or found.origin is None:
        raise DataError("data 'digits': scikit-learn is not installed; run pip install scikit-learn")
    return Path(found.origin).parent / "datasets" / "data" / "digits.csv.gz"
