"""The adding task (Hochreiter & Schmidhuber 1997) with digits: `adding:100` has sequences of 100 steps.

A step is a digit and a mark. Two digits are marked, one in each half, and the class is their sum. A network that
reads step by step has to remember the first one, which may lie far back. A sequence is an image with a row per step.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from paceline.data.cache import Progress
from paceline.data.dataset import Arrays, Dataset, unit_interval
from paceline.data.generated import sample_counts, whole_argument
from paceline.data.source import Source, without_count

DEFAULT_TRAINING = 20_000
DIGITS = 5
"""Values of a digit: 0 to 4, so there are nine sums."""
MOST_LENGTH = 100_000


def load(source: Source, cache: Path, progress: Progress | None) -> Dataset:
    source.allow()
    length = whole_argument(source, "length", 2, MOST_LENGTH)
    training, testing = sample_counts(source, DEFAULT_TRAINING, 4 * length + 32)
    return Dataset(
        name=without_count(source),
        kind="image",
        shape=(1, length, 2),
        classes=tuple(str(i) for i in range(2 * DIGITS - 1)),
        train=_part(training, length, seed=1),
        test=_part(testing, length, seed=2),
        prepare=unit_interval,
    )


def _part(count: int, length: int, seed: int) -> Arrays:
    random = np.random.default_rng(seed)
    digits = random.integers(0, DIGITS, (count, length), dtype=np.uint8)
    first, second = random.integers(0, length // 2, count), random.integers(length // 2, length, count)
    marks = np.zeros_like(digits)
    every = np.arange(count)
    marks[every, first] = marks[every, second] = 255
    labels = digits[every, first].astype(np.int64) + digits[every, second]
    digits *= 255 // (DIGITS - 1)  # a byte stands for a number in [0, 1]
    return Arrays(torch.from_numpy(np.stack([digits, marks], axis=-1)[:, np.newaxis]), torch.from_numpy(labels))
