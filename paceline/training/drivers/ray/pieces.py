"""Flat tensors as Ray carries them fastest.

Ray sends an argument or a result of up to 100 KiB within the call itself; a larger one makes a detour through the
object store that takes milliseconds. So a vector of up to `INLINE_BYTES` travels as several small arrays, and a larger
one as a single array, which processes of one node then share without a copy.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

PIECE_BYTES = 96 << 10
INLINE_BYTES = 1 << 20

Array = npt.NDArray[Any]


class Pieces:
    """Splits and joins vectors of up to `size` numbers."""

    def __init__(self, size: int, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.inline = size * dtype.itemsize <= INLINE_BYTES
        """Whether they travel in the call itself, not through the object store."""
        self.length = PIECE_BYTES // dtype.itemsize if self.inline else max(size, 1)
        self.count = max(1, -(-size // self.length))

    def __len__(self) -> int:
        return self.count

    def cut(self, flat: Tensor) -> list[Array]:
        """Splits a tensor; the pieces are views if it is on the CPU."""
        array: Array = flat.detach().cpu().numpy()
        return [array[first : first + self.length] for first in range(0, max(len(array), 1), self.length)]

    def filled_up(self, flat: Tensor | None) -> list[Array | None]:
        """Exactly as many pieces as the longest vector has, those that are missing as None."""
        found: list[Array | None] = [*self.cut(flat)] if flat is not None else []
        return found + [None] * (len(self) - len(found))

    def put_into(self, out: Tensor, pieces: Sequence[Array]) -> None:
        """Joins the pieces in `out`, unless it is their memory."""
        if pieces and pieces[0].ctypes.data == out.data_ptr():
            return
        first = 0
        for piece in pieces:
            out[first : first + len(piece)].copy_(_tensor(piece))
            first += len(piece)
        if first != len(out):
            raise ValueError(f"{first} numbers for {len(out)}")

    def joined(self, pieces: Sequence[Array]) -> Tensor:
        """One tensor, read-only: a single piece is not copied."""
        if len(pieces) == 1:
            return _tensor(pieces[0])
        return torch.from_numpy(np.concatenate(pieces))


def _tensor(piece: Array) -> Tensor:
    with warnings.catch_warnings():  # what Ray received is read-only, and nobody writes to it
        warnings.simplefilter("ignore")
        return torch.from_numpy(np.asarray(piece))
