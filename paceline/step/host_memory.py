"""Freed memory of a CPU step is kept for the next step instead of being given back to the system.

glibc gives tensors of more than 32 MB fresh pages each time, and the system clears each page when it is first used.
Convolution networks wait for that as long as for some of their layers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4
"""Parameters of `mallopt` in glibc's malloc.h."""
_KEPT = {_MMAP_MAX: 0, _TRIM_THRESHOLD: -1}
_GIVEN_BACK = {_MMAP_MAX: 65536, _MMAP_THRESHOLD: 32 << 20, _TRIM_THRESHOLD: 64 << 20}
"""Once set, glibc no longer adapts these thresholds to what a program frees: they get the largest values that it would
adapt them to, as it has done in most programs with tensors."""
_is_kept = False


def keep_freed_memory() -> None:
    """From now on freed memory stays with this process; nothing happens where the C library is not glibc."""
    global _is_kept
    _is_kept = _set(_KEPT) or _is_kept


def give_back_freed_memory() -> None:
    """Freed memory goes back to the system, now and from now on."""
    global _is_kept
    if _is_kept:
        _set(_GIVEN_BACK)
        _is_kept = False
        ctypes.CDLL(None).malloc_trim(0)


@contextmanager
def freed_memory_given_back() -> Iterator[None]:
    """At the end, the memory that is free by then goes back to the system."""
    before = _is_kept
    try:
        yield
    finally:
        if not before:
            give_back_freed_memory()


def is_kept() -> bool:
    return _is_kept


def _set(parameters: dict[int, int]) -> bool:
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallopt") or not hasattr(library, "malloc_trim"):
        return False
    return all(bool(library.mallopt(name, value)) for name, value in parameters.items())
