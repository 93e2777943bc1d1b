"""What every data source becomes: a training and a test part, and how a raw batch is prepared on the device.

A part is `Arrays` (tensors or memory-mapped files, gathered by index), `Samples` (a torch data set, read when a batch
is needed) or `Files` (samples that are read and decoded from disk, in the background). Nothing here knows where the
bytes came from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from paceline.data.fields import Fields, Inputs
from paceline.data.samples import Samples

Prepare = Callable[[Any, Tensor], tuple[Any, Tensor]]


def as_is(x: Any, y: Tensor) -> tuple[Any, Tensor]:
    return x, y


@dataclass(frozen=True)
class Arrays:
    """Samples that can be gathered by index: `x[i]` belongs to `y[i]`."""

    x: Inputs
    y: Tensor

    def __len__(self) -> int:
        return len(self.x)

    @property
    def size_bytes(self) -> int:
        x = self.x
        size = x.size_bytes if isinstance(x, Fields) else x.numel() * x.element_size()
        return size + self.y.numel() * self.y.element_size()

    def first(self, count: int) -> Arrays:
        return Arrays(*self.rows(slice(0, count)))

    def rows(self, piece: slice) -> tuple[Inputs, Tensor]:
        return (self.x.rows(piece) if isinstance(self.x, Fields) else self.x[piece]), self.y[piece]

    def gather(self, chosen: Tensor) -> tuple[Inputs, Tensor]:
        return self.x.index_select(0, chosen), self.y.index_select(0, chosen)

    def select(self, chosen: Tensor) -> Arrays:
        return Arrays(*self.gather(chosen))


class Reader(Protocol):
    """Reads samples in the background; `request` returns at once, `receive` waits for the oldest request."""

    def request(self, indices: Tensor, epoch: int) -> None: ...

    def receive(self) -> tuple[Tensor, Tensor]: ...

    def close(self) -> None: ...


class Files(Protocol):
    """Samples on disk, too many to hold. `open` starts what reads them; `depth` batches are in flight."""

    def __len__(self) -> int: ...

    def first(self, count: int) -> Files: ...

    def open(self, *, batch: int, seed: int, training: bool, depth: int, readers: int) -> Reader: ...


@dataclass(frozen=True)
class Dataset:
    """A data source, ready to be fed. `shape` is one prepared sample's, without the batch."""

    name: str
    kind: Literal["image", "text", "table", "tree", "fields"]
    shape: tuple[int, ...]
    """Empty where a sample has several fields."""
    classes: tuple[str, ...]
    train: Arrays | Samples | Files
    test: Arrays | Samples | Files
    prepare: Prepare = field(default=as_is, compare=False)
    """Runs on the device for every batch: converts and normalises. It must not wait for the device."""

    def first(self, count: int) -> Dataset:
        """The same data set with only its first `count` training samples."""
        from dataclasses import replace

        return replace(self, train=self.train.first(count))


def unit_interval(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Bytes 0..255 as numbers in [0, 1]."""
    return x.to(torch.get_default_dtype()).div_(255.0), y
