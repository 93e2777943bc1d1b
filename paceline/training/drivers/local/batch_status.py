"""The status of every batch in shared memory: a word each, written before it is published.

A word holds the epoch, whether the batch was applied, dropped or refused, and the number of the publication. A word of
one that never came does not count, so a process that dies in the middle of an update leaves nothing half done.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.training.drivers.local.fields import HeaderField
from paceline.training.drivers.local.shared_memory import SharedMemory

APPLIED, DROPPED, REFUSED = range(3)
_NUMBER_BITS = 40
_EPOCH_SHIFT = _NUMBER_BITS + 2


def mark(memory: SharedMemory, epoch: int, batches: tuple[int, ...], kind: int, number: int) -> None:
    """Closes batches as part of publication `number`, and counts them in its header."""
    word = ((epoch + 1) << _EPOCH_SHIFT) | (kind << _NUMBER_BITS) | number
    parity, header = epoch % 2, memory.headers[number % 2]
    row = memory.batch_words[parity]
    for batch in batches:
        row[batch] = word
    if header[HeaderField.EPOCHS + parity] != epoch + 1:
        header[HeaderField.EPOCHS + parity], header[HeaderField.CLOSED + parity] = epoch + 1, 0
    header[HeaderField.CLOSED + parity] += len(batches)


def closed_count(header: memoryview, epoch: int) -> int:
    """How many batches of an epoch are closed."""
    known = header[HeaderField.EPOCHS + epoch % 2] == epoch + 1
    return header[HeaderField.CLOSED + epoch % 2] if known else 0


def closed(memory: SharedMemory, epoch: int) -> npt.NDArray[Any]:
    """For each batch of an epoch whether it is closed."""
    row = memory.batch_status[epoch % 2]
    found: npt.NDArray[Any] = (row >> _EPOCH_SHIFT) == epoch + 1
    found &= ~_later(memory, row)
    return found


def counts(memory: SharedMemory, epoch: int) -> tuple[int, int, int]:
    """How many batches of an epoch were applied, dropped and refused."""
    kinds = ((memory.batch_status[epoch % 2] >> _NUMBER_BITS) & 3)[closed(memory, epoch)]
    applied, dropped, refused = np.bincount(kinds, minlength=3)[:3].tolist()
    return applied, dropped, refused


def begun(memory: SharedMemory) -> list[int]:
    """Epochs with at least one closed batch that the words still cover, in order."""
    epochs = set()
    for row in memory.batch_status:
        epochs.update((np.unique(row[~_later(memory, row) & (row > 0)] >> _EPOCH_SHIFT) - 1).tolist())
    return sorted(epochs)


def forget_unpublished(memory: SharedMemory) -> None:
    """Clears marks of a publication that never happened, before its number is used again."""
    status = memory.batch_status
    status[_later(memory, status)] = 0


def _later(memory: SharedMemory, words: npt.NDArray[Any]) -> npt.NDArray[Any]:
    found: npt.NDArray[Any] = (words & ((1 << _NUMBER_BITS) - 1)) > memory.published
    return found
