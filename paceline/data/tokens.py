"""Tokens by length, vocabulary and count, `tokens:512/32000:1024`: sequences to measure and predict language models on.

Most tokens follow from the one before by a fixed rule, so that predicting the next one can be learned.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import torch

from paceline.data.cache import Progress
from paceline.data.dataset import Arrays, Dataset
from paceline.data.source import Source, without_count
from paceline.data.text import inputs_and_targets
from paceline.errors import DataError
from paceline.free_memory import free_memory_bytes, memory_size

DEFAULT_VOCABULARY = 256
DEFAULT_TRAINING = 1024
_TEST_SHARE = 4
_SURPRISING = 0.1
_FORM = re.compile(r"(\d+)(?:/(\d+))?")


def load(source: Source, cache: Path, progress: Progress | None) -> Dataset:
    source.allow()
    length, vocabulary = length_and_vocabulary(source)
    training = source.count or DEFAULT_TRAINING
    testing = max(1, training // _TEST_SHARE)
    size_bytes = 3 * 4 * (training + testing) * (length + 1) + 61 * vocabulary
    if size_bytes > (free := free_memory_bytes()):
        raise DataError(
            f"data {source.text!r} takes {memory_size(size_bytes)} of memory, {memory_size(free)} are free: "
            "use fewer or shorter sequences"
        )
    return Dataset(
        name=without_count(source),
        kind="text",
        shape=(length,),
        classes=tuple(str(i) for i in range(vocabulary)),
        train=_part(training, length, vocabulary, seed=1),
        test=_part(testing, length, vocabulary, seed=2),
        prepare=inputs_and_targets,
    )


def length_and_vocabulary(source: Source) -> tuple[int, int]:
    form = _FORM.fullmatch(source.needed_argument("length"))
    if form is None:
        raise DataError(f"data {source.text!r}: write LENGTH or LENGTH/VOCABULARY, for example tokens:512/32000")
    length, vocabulary = int(form[1]), int(form[2] or DEFAULT_VOCABULARY)
    if length < 1 or vocabulary < 2:
        raise DataError(f"data {source.text!r}: the length must be at least 1 and the vocabulary at least 2")
    if vocabulary > 1 << 24 or length > 1 << 24:
        raise DataError(f"data {source.text!r}: length and vocabulary must be at most {1 << 24:,}")
    return length, vocabulary


def _part(count: int, length: int, vocabulary: int, seed: int) -> Arrays:
    """A stored sequence is one token longer than a sample; the rule is t' = 3 t + 1."""
    random = np.random.default_rng(seed)
    drawn = random.integers(0, vocabulary, (count, length + 1), dtype=np.int32)
    surprising = random.random((count, length + 1), dtype=np.float32) < _SURPRISING
    for place in range(1, length + 1):
        follows = (3 * drawn[:, place - 1].astype(np.int64) + 1) % vocabulary
        drawn[:, place] = np.where(surprising[:, place], drawn[:, place], follows)
    return Arrays(torch.from_numpy(drawn), torch.zeros(count, dtype=torch.uint8))
