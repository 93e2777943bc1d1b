"""The status of every batch in shared memory: a word each, written before the update that it belongs to.

A word holds the epoch, whether the batch was applied, dropped or refused, and the version. A word of a version that was
never published does not count, so a server that dies in the middle of an update leaves nothing half done.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.training.drivers.local.shared_memory import SharedMemory

APPLIED, DROPPED, REFUSED = range(3)
_VERSION_BITS = 40
_EPOCH_SHIFT = _VERSION_BITS + 2


def mark(memory: SharedMemory, epoch: int, batches: tuple[int, ...], kind: int, version: int) -> None:
    word = ((epoch + 1) << _EPOCH_SHIFT) | (kind << _VERSION_BITS) | version
    row = memory.batch_words[epoch % 2]
    for batch in batches:
        row[batch] = word


def closed(status: npt.NDArray[Any], epoch: int, version: int) -> npt.NDArray[Any]:
    """For each batch of an epoch whether it is closed, as of `version`."""
    row = status[epoch % 2]
    found: npt.NDArray[Any] = (row >> _EPOCH_SHIFT) == epoch + 1
    found &= (row & ((1 << _VERSION_BITS) - 1)) <= version
    return found


def counts(status: npt.NDArray[Any], epoch: int, version: int) -> tuple[int, int, int]:
    """How many batches of an epoch were applied, dropped and refused."""
    kinds = ((status[epoch % 2] >> _VERSION_BITS) & 3)[closed(status, epoch, version)]
    applied, dropped, refused = np.bincount(kinds, minlength=3)[:3].tolist()
    return applied, dropped, refused


def begun(status: npt.NDArray[Any], version: int) -> list[int]:
    """Epochs of which at least one batch is closed and that the words still show, in order."""
    epochs = set()
    for row in status:
        known = (row & ((1 << _VERSION_BITS) - 1)) <= version
        epochs.update((np.unique(row[known & (row > 0)] >> _EPOCH_SHIFT) - 1).tolist())
    return sorted(epochs)


def forget_after(status: npt.NDArray[Any], version: int) -> None:
    """Clears what was marked for a version that was never committed, before another of that number is."""
    status[(status & ((1 << _VERSION_BITS) - 1)) > version] = 0
