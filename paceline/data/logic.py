"""Trees of Boolean logic: `logic:5` has expressions such as (true xor not false) and true, nested up to five deep.

A sample holds the tokens of a binary tree in the order of a heap: the children of place i are at 2 i + 1 and
2 i + 2, so each level is one piece. Places without a token are 0; `not` has a left child alone. The class is the value.
Both classes are equally frequent.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from paceline.data.cache import Progress
from paceline.data.dataset import Arrays, Dataset
from paceline.data.generated import sample_counts, whole_argument
from paceline.data.source import Source, without_count

TOKENS = ("", "false", "true", "not", "and", "or", "xor")
_FALSE, _TRUE, _NOT, _AND, _OR, _XOR = range(1, len(TOKENS))
DEFAULT_TRAINING = 10_000
LEAST_DEPTH, MOST_DEPTH = 3, 12
"""There are too few shallower trees for others in training than in testing."""
ENDS = 0.2
"""Probability that a branch ends before the deepest level."""

Trees = npt.NDArray[Any]


def load(source: Source, cache: Path, progress: Progress | None) -> Dataset:
    source.allow()
    depth = whole_argument(source, "depth", LEAST_DEPTH, MOST_DEPTH)
    places = 2 ** (depth + 1) - 1
    training, testing = sample_counts(source, DEFAULT_TRAINING, 8 * places)
    train = _trees(training, depth, seed=1)
    return Dataset(
        name=without_count(source),
        kind="tree",
        shape=(places,),
        classes=("false", "true"),
        train=_labelled(train),
        test=_labelled(_trees(testing, depth, seed=2, but=train)),
        prepare=as_tokens,
    )


def as_tokens(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x.to(torch.int64), y


def truth_values(trees: Trees) -> Trees:
    """The value of every place; False where there is no token."""
    values: Trees = trees == _TRUE
    depth = trees.shape[1].bit_length() - 1
    for first in (2**level - 1 for level in reversed(range(depth))):
        level = slice(first, 2 * first + 1)
        left, right = values[:, 2 * first + 1 : 4 * first + 3 : 2], values[:, 2 * first + 2 : 4 * first + 3 : 2]
        operators = [trees[:, level] == each for each in (_AND, _OR, _XOR, _NOT)]
        values[:, level] = np.select(operators, [left & right, left | right, left ^ right, ~left], values[:, level])
    return values


def _labelled(trees: Trees) -> Arrays:
    return Arrays(torch.from_numpy(trees), torch.from_numpy(truth_values(trees)[:, 0].astype(np.int64)))


def _trees(count: int, depth: int, seed: int, but: Trees | None = None) -> Trees:
    """As many of each value, in turn, without those of `but`."""
    random = np.random.default_rng(seed)
    known = set() if but is None else {tree.tobytes() for tree in but}
    found: tuple[list[Trees], list[Trees]] = [], []
    half = count // 2 + 1
    while min(map(len, found)) < half:
        drawn = _drawn(random, half, depth)
        for tree, value in zip(drawn, truth_values(drawn)[:, 0], strict=True):
            if tree.tobytes() not in known:
                found[int(value)].append(tree)
    return np.stack([np.stack(some[:half]) for some in found], axis=1).reshape(2 * half, -1)[:count]


def _drawn(random: np.random.Generator, count: int, depth: int) -> Trees:
    """Trees that begin with an operator and end on the deepest level or before."""
    trees = np.zeros((count, 2 ** (depth + 1) - 1), dtype=np.uint8)
    wanted = np.ones((count, 1), dtype=np.bool_)
    for level in range(depth + 1):
        operators = random.integers(_NOT, _XOR + 1, wanted.shape, dtype=np.uint8)
        constants = random.integers(_FALSE, _TRUE + 1, wanted.shape, dtype=np.uint8)
        ends = (random.random(wanted.shape) < (ENDS if level else 0)) | (level == depth)
        tokens = np.where(ends, constants, operators) * wanted
        trees[:, 2**level - 1 : 2 ** (level + 1) - 1] = tokens
        wanted = np.stack([tokens >= _NOT, tokens >= _AND], axis=-1).reshape(count, -1)
    return trees
