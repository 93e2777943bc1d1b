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
    x, y = as_tensor(f"{name}: x_train", x_train), as_tensor(f"{name}: y_train", y_train)
    other_x, other_y = as_tensor(f"{name}: x_test", x_test), as_tensor(f"{name}: y_test", y_test)
    for samples, targets, word in ((x, y, "train"), (other_x, other_y, "test")):
        if samples.dim() == 0 or targets.dim() == 0 or len(samples) != len(targets) or len(samples) == 0:
            counts = [len(each) if each.dim() else "no" for each in (samples, targets)]
            raise DataError(
                f"data {name!r}: x_{word} has {counts[0]} samples and y_{word} {counts[1]}; "
                "both need the same number, at least one"
            )
    if x.shape[1:] != other_x.shape[1:]:
        raise DataError(
            f"data {name!r}: a training sample is {tuple(x.shape[1:])}, "
            f"a test sample {tuple(other_x.shape[1:])}; they must have the same shape"
        )
    kind = kind_of(x, y)
    return Dataset(
        name=name,
        kind=kind,
        shape=tuple(x.shape[1:]),
        classes=classes_of(name, y, other_y),
        train=Arrays(x, y),
        test=Arrays(other_x, other_y),
        prepare=Convert(bytes_to_unit=x.dtype == torch.uint8, keep_whole=kind == "text"),
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


def kind_of(x: Tensor, y: Tensor) -> Literal["image", "text", "table"]:
    """A sample of three dimensions is an image; whole numbers with as many targets are text."""
    if x.dim() == 4:
        return "image"
    whole = not x.is_floating_point() and not y.is_floating_point()
    return "text" if x.dim() == 2 and whole and y.shape == x.shape else "table"


def classes_of(name: str, *labels: Tensor) -> tuple[str, ...]:
    """Their numbers, where the targets are classes."""
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
