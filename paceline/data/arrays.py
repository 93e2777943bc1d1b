"""Arrays of the user's own, `x_train.npy`, `y_train.npy`, `x_test.npy`, `y_test.npy`: mapped, not read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from paceline.data.cache import Progress
from paceline.data.dataset import Arrays, Dataset
from paceline.data.source import Source, without_count
from paceline.errors import DataError

_NAMES = ("x_train", "y_train", "x_test", "y_test")


def load(source: Source, cache: Path, progress: Progress | None) -> Dataset:
    source.allow()
    folder = Path(source.needed_argument("path")).expanduser()
    if not folder.is_dir():
        raise DataError(f"data {source.text!r}: {folder} is not a folder; it must hold x_train.npy and the others")
    return dataset_of(without_count(source), *(_mapped(folder / f"{name}.npy") for name in _NAMES))


def dataset_of(name: str, x_train: Any, y_train: Any, x_test: Any, y_test: Any) -> Dataset:
    """Four tensors or arrays as a data set: bytes become numbers in [0, 1], whole y are classes"""
    train = Arrays(as_tensor(f"{name}: x_train", x_train), as_tensor(f"{name}: y_train", y_train))
    test = Arrays(as_tensor(f"{name}: x_test", x_test), as_tensor(f"{name}: y_test", y_test))
    for part, word in ((train, "train"), (test, "test")):
        if len(part.x) != len(part.y) or len(part.x) == 0:
            raise DataError(
                f"data {name!r}: x_{word} has {len(part.x)} samples and y_{word} {len(part.y)}; "
                "both need the same number, at least one"
            )
    if train.x.shape[1:] != test.x.shape[1:]:
        raise DataError(
            f"data {name!r}: a training sample is {tuple(train.x.shape[1:])}, "
            f"a test sample {tuple(test.x.shape[1:])}; both need one shape"
        )
    return Dataset(
        name=name,
        kind=_kind(train),
        shape=tuple(train.x.shape[1:]),
        classes=_classes(name, train.y, test.y),
        train=train,
        test=test,
        prepare=Convert(bytes_to_unit=train.x.dtype == torch.uint8, keep_whole=_kind(train) == "text"),
    )


@dataclass(frozen=True)
class Convert:
    """Numbers in the type that is trained in; classes as int64."""

    bytes_to_unit: bool
    keep_whole: bool

    def __call__(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        dtype = torch.get_default_dtype()
        if self.keep_whole:
            return x.to(torch.int64), y.to(torch.int64)
        x = x.to(dtype).div_(255.0) if self.bytes_to_unit else x.to(dtype)
        return x, y.to(dtype) if y.is_floating_point() else y.to(torch.int64)


def _kind(part: Arrays) -> Literal["image", "text", "table"]:
    if part.x.dim() == 4:
        return "image"
    whole = not part.x.is_floating_point() and not part.y.is_floating_point()
    return "text" if part.x.dim() == 2 and whole and part.y.shape == part.x.shape else "table"


def _classes(name: str, *labels: Tensor) -> tuple[str, ...]:
    if any(y.is_floating_point() for y in labels):
        return ()
    if min(int(y.min()) for y in labels) < 0:
        raise DataError(f"data {name!r}: y has a class below 0; number the classes from 0")
    return tuple(str(i) for i in range(max(int(y.max()) for y in labels) + 1))


def as_tensor(what: str, value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value
    try:
        return torch.from_numpy(np.asarray(value))
    except (TypeError, ValueError) as error:
        raise DataError(f"data {what}: not an array that PyTorch can use: {error}") from error


def _mapped(path: Path) -> Any:
    try:
        # Copy-on-write: nothing is read before it is used, and nothing is written back.
        return np.load(path, mmap_mode="c", allow_pickle=False)
    except FileNotFoundError:
        raise DataError(f"{path} is missing; save it with numpy.save") from None
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path} cannot be read: {error}; save it again with numpy.save") from error
