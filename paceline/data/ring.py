"""The memory that decoders share with the trainer: anonymous, so nothing can be left behind.

A ring has slots of one batch each. The trainer writes which samples it wants into a slot, decoders write the
pixels; who may write when is agreed over pipes, so there is no lock.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

_ALIGNMENT = 4096


def anonymous_file(name: str, size_bytes: int) -> int:
    """A descriptor of memory without a name; where the system has none, of a file already removed."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create(name)
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, size_bytes)
    return descriptor


@dataclass(frozen=True)
class Ring:
    """The sizes; trainer and decoders compute the same layout from them."""

    slots: int
    batch: int
    size: int

    @property
    def _pixels_at(self) -> int:
        numbers = 8 * self.slots * (self.batch + 1)
        return -(-numbers // _ALIGNMENT) * _ALIGNMENT

    @property
    def size_bytes(self) -> int:
        return self._pixels_at + self.slots * self.batch * 3 * self.size * self.size

    def map(self, descriptor: int) -> RingViews:
        memory = mmap.mmap(descriptor, self.size_bytes)
        numbers = np.frombuffer(memory, dtype=np.int64, count=self.slots * (self.batch + 1))
        pixels = np.frombuffer(memory, dtype=np.uint8, offset=self._pixels_at)
        return RingViews(
            epochs=numbers[: self.slots],
            indices=numbers[self.slots :].reshape(self.slots, self.batch),
            pixels=pixels.reshape(self.slots, self.batch, 3, self.size, self.size),
        )


@dataclass(frozen=True)
class RingViews:
    """Of each slot: the epoch it is for, the samples wanted, and their pixels."""

    epochs: npt.NDArray[Any]
    indices: npt.NDArray[Any]
    pixels: npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class PathTable:
    """Many paths as one block of bytes: a million strings would fill memory in every process."""

    ends: npt.NDArray[Any]
    block: bytes | memoryview

    @classmethod
    def of(cls, paths: Sequence[bytes]) -> PathTable:
        return cls(np.cumsum([len(path) for path in paths], dtype=np.int64), b"".join(paths))

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, index: int) -> str:
        start = int(self.ends[index - 1]) if index else 0
        return os.fsdecode(bytes(self.block[start : int(self.ends[index])]))

    def first(self, count: int) -> PathTable:
        return PathTable(self.ends[:count], self.block[: int(self.ends[count - 1])] if count else b"")

    def share(self) -> int:
        """A descriptor from which another process can `map` the table."""
        descriptor = anonymous_file("paceline-paths", self.ends.nbytes + len(self.block))
        with os.fdopen(descriptor, "wb", closefd=False) as stream:
            stream.write(self.ends.tobytes())
            stream.write(self.block)
        return descriptor

    @classmethod
    def map(cls, descriptor: int, count: int) -> PathTable:
        memory = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
        ends = np.frombuffer(memory, dtype=np.int64, count=count)
        return cls(ends, memoryview(memory)[ends.nbytes :])
