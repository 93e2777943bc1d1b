"""Freed memory of a CPU step is kept for the next step instead of being given back to the system.

glibc gives tensors of more than 32 MB fresh pages each time, and the system clears each page when it is first used.
Convolution networks wait for that as long as for some of their layers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
"""Parameters of `mallopt` in glibc's malloc.h."""
_NEVER_TRIM, _DEFAULT_TRIM = -1, 128 << 10
_NO_MMAP, _DEFAULT_MMAP_MAX = 0, 65536
_is_kept = False


def keep_freed_memory() -> None:
    """From now on freed memory stays with this process; nothing happens where the C library is not glibc."""
    global _is_kept
    _is_kept = _set(_NO_MMAP, _NEVER_TRIM) or _is_kept


@contextmanager
def freed_memory_given_back() -> Iterator[None]:
    """At the end, the memory that is free by then goes back to the system."""
    global _is_kept
    before = _is_kept
    try:
        yield
    finally:
        if _is_kept and not before:
            _set(_DEFAULT_MMAP_MAX, _DEFAULT_TRIM)
            _is_kept = False
            ctypes.CDLL(None).malloc_trim(0)


def is_kept() -> bool:
    return _is_kept


def _set(mmap_max: int, trim_threshold: int) -> bool:
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallopt") or not hasattr(library, "malloc_trim"):
        return False
    return bool(library.mallopt(_MMAP_MAX, mmap_max)) and bool(library.mallopt(_TRIM_THRESHOLD, trim_threshold))
