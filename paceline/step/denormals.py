"""Denormal numbers become zero while a CPU trains.

An optimizer's mean of the gradients of a unit that has died falls below 1e-38, where numbers lose their leading digit.
A CPU takes ten times as long to compute with those, and training slows down from epoch to epoch. They are far too small
to change a parameter, so the processor is told to write zeros instead.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_SOFT_PAUSE = 1
"""`omp_pause_soft` in OpenMP's omp.h."""


def are_flushed() -> bool:
    return float(torch.tensor(torch.finfo(torch.float32).tiny) * 0.5) == 0.0


def flush_denormals() -> None:
    """From now on they are zero in this thread and in those that compute for it; nothing happens where the processor
    cannot."""
    _flush(True)


@contextmanager
def denormals_flushed() -> Iterator[None]:
    before = are_flushed()
    _flush(True)
    try:
        yield
    finally:
        _flush(before)


def _flush(wanted: bool) -> None:
    if are_flushed() != wanted and torch.set_flush_denormal(wanted):
        _end_idle_threads()


def _end_idle_threads() -> None:
    """Ends the threads that wait for this thread's next operation: new ones begin with this one's settings."""
    library = ctypes.CDLL(None)
    if hasattr(library, "omp_pause_resource_all"):
        library.omp_pause_resource_all(_SOFT_PAUSE)
