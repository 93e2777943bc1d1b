"""Noise of any shape with a faint pattern per class, so that it can be learned: `synthetic:3x224x224/1000`.

Numbers have mean 0 and deviation 1, or with `?scale=unit` are in [0, 1].
"""

from __future__ import annotations

import re
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from paceline.data.cache import Progress
from paceline.data.dataset import Arrays, Dataset, unit_interval
from paceline.data.normalise import Normalise
from paceline.data.source import Source, without_count
from paceline.errors import DataError
from paceline.free_memory import free_memory_bytes, memory_size

_DEFAULT_CLASSES = 10
DEFAULT_TRAINING = 1024
_TEST_SHARE = 4
_FORM = re.compile(r"(\d+(?:x\d+)*)(?:/(\d+))?")
# A byte is noise (0..127) plus pattern (0..63): their means add, and so do their variances.
_MEAN = (63.5 + 31.5) / 255
_DEVIATION = ((128**2 - 1 + 64**2 - 1) / 12) ** 0.5 / 255


def load(source: Source, cache: Path, progress: Progress | None) -> Dataset:
    allow_options(source)
    shape, classes = shape_and_classes(source)
    training = source.count or DEFAULT_TRAINING
    testing = max(1, training // _TEST_SHARE)
    _check_size(source, shape, classes, training + testing)
    # Every class reads the same pattern, each from one place further: no memory a class.
    try:
        pattern = np.random.default_rng(0).integers(0, 64, size=prod(shape) + classes - 1, dtype=np.uint8)
        train = _part(shape, classes, training, pattern, seed=1)
        test = _part(shape, classes, testing, pattern, seed=2)
    except (MemoryError, ValueError, OverflowError) as error:  # numpy has three names for too much
        size_bytes = (training + testing) * prod(shape) + classes
        raise DataError(f"data {source.text!r}: {size_bytes:,} bytes do not fit into memory; ask for fewer") from error
    return Dataset(
        name=without_count(source),
        kind="image" if len(shape) == 3 else "table",
        shape=shape,
        classes=tuple(str(i) for i in range(classes)),
        train=train,
        test=test,
        prepare=unit_interval if "scale" in source.options else Normalise((_MEAN,), (_DEVIATION,)),
    )


def allow_options(source: Source) -> None:
    source.allow("scale")
    if source.options.get("scale", "unit") != "unit":
        raise DataError(f"data {source.text!r}: scale={source.options['scale']:.60} should be unit, or left out")


def _check_size(source: Source, shape: tuple[int, ...], classes: int, samples: int) -> None:
    """A byte for a number, 24 for a sample's label and its place in the order, about 60 for the name of a class."""
    size_bytes = samples * (prod(shape) + 24) + 61 * classes
    if size_bytes > (free := free_memory_bytes()):
        raise DataError(
            f"data {source.text!r} takes {memory_size(size_bytes)} of memory, {memory_size(free)} are free: "
            "use fewer samples, a smaller shape or fewer classes"
        )


def shape_and_classes(source: Source) -> tuple[tuple[int, ...], int]:
    form = _FORM.fullmatch(source.needed_argument("shape"))
    if form is None:
        raise DataError(f"data {source.text!r}: write SHAPE or SHAPE/CLASSES, for example synthetic:3x224x224/1000")
    shape = tuple(int(size) for size in form[1].split("x"))
    classes = int(form[2]) if form[2] else _DEFAULT_CLASSES
    if min(shape) < 1 or classes < 1:
        raise DataError(f"data {source.text!r}: sizes and classes must be at least 1")
    return shape, classes


def _part(shape: tuple[int, ...], classes: int, count: int, pattern: npt.NDArray[Any], seed: int) -> Arrays:
    size = prod(shape)
    # Eight bytes a draw: filling an array of bytes one by one takes several times as long.
    words = np.random.default_rng(seed).integers(0, 1 << 64, -(-count * size // 8), dtype=np.uint64)
    words &= np.uint64(0x7F7F7F7F7F7F7F7F)
    samples = words.view(np.uint8)[: count * size].reshape(count, size)
    labels = np.arange(count, dtype=np.int64) % classes
    for sample, label in zip(samples, labels, strict=True):
        sample += pattern[label : label + size]
    return Arrays(torch.from_numpy(samples.reshape(count, *shape)), torch.from_numpy(labels))
