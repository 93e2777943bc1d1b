"""Finds the images of class folders and splits them into a training and a test part."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.data.ring import PathTable
from paceline.errors import DataError

_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp")
_TEST_EVERY = 10


@dataclass(frozen=True, eq=False)
class FolderPart:
    """Images and their classes, one of each class in turn, so that the first few are a fair sample."""

    paths: PathTable
    labels: npt.NDArray[Any]


def class_folders(root: Path) -> list[str]:
    """The names of the class folders, sorted; from `train/` if there is one."""
    training, testing = split_folders(root) or (root, root)
    names = _subfolders(training)
    if not names:
        raise DataError(f"{training} has no class folders; put the images of each class into a folder of their own")
    for name in _subfolders(testing):
        if name not in names:
            raise DataError(f"class folder {testing / name} is not in {training}; the classes must be the same")
    return names


def _subfolders(folder: Path) -> list[str]:
    return sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and entry.name[0] != ".")


def split_folders(root: Path) -> tuple[Path, Path] | None:
    """The folders for training and testing, if the images come divided."""
    training = root / "train"
    testing = next((root / name for name in ("val", "test") if (root / name).is_dir()), None)
    return (training, testing) if training.is_dir() and testing is not None else None


def find_images(root: Path, classes: Sequence[str]) -> tuple[FolderPart, FolderPart]:
    divided = split_folders(root)
    if divided is None:
        groups = [_images(root / name) for name in classes]
        tests = [[path for rank, path in enumerate(group) if _is_test(rank, group)] for group in groups]
        trains = [[path for rank, path in enumerate(group) if not _is_test(rank, group)] for group in groups]
        return _interleaved(trains), _interleaved(tests)
    training, testing = divided
    test_classes = [name for name in classes if (testing / name).is_dir()]
    if not test_classes:
        raise DataError(f"{testing} has no folder of the classes in {training}; use the same names for both")
    return (
        _interleaved([_images(training / name) for name in classes]),
        _interleaved([_images(testing / name) if name in test_classes else [] for name in classes]),
    )


def _is_test(rank: int, group: Sequence[bytes]) -> bool:
    """Every tenth image, and the last one of a class that has fewer."""
    return rank % _TEST_EVERY == _TEST_EVERY - 1 or (len(group) < _TEST_EVERY and 0 < rank == len(group) - 1)


def _images(folder: Path) -> list[bytes]:
    found = [
        os.fsencode(os.path.join(parent, name))  # noqa: PTH118 - a million Path objects would take a minute
        for parent, _, names in os.walk(folder, followlinks=True)
        for name in names
        if name.lower().endswith(_SUFFIXES) and name[0] != "."
    ]
    if not found:
        raise DataError(f"class folder {folder} has no images ({', '.join(_SUFFIXES)}); add some or remove it")
    return sorted(found)


def _interleaved(groups: Sequence[Sequence[bytes]]) -> FolderPart:
    labels = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    ranks = np.concatenate([np.arange(len(group)) for group in groups])
    order = np.lexsort((labels, ranks))
    paths = [path for group in groups for path in group]
    return FolderPart(PathTable.of([paths[i] for i in order]), labels[order].astype(np.int64))
