"""Arrays computed once from a file and kept in the cache as `.npy`, so that every process only maps them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.data.cache import fingerprint, locked, read_json, replacing_file, write_json

Notes = dict[str, Any]
Build = Callable[[Path], Notes]
"""Writes the array to the given path and returns what else must be remembered."""


def derived(cache: Path, name: str, made_from: object, build: Build) -> tuple[npt.NDArray[Any], Notes]:
    """The array `name`, mapped copy-on-write; built again when `made_from` or its file has changed."""
    folder = cache / "derived"
    target = folder / f"{name}.npy"
    record = folder / f"{name}.json"
    with locked(folder):
        notes = _notes_if_current(target, record, made_from)
        if notes is None:
            with replacing_file(target) as temporary:
                notes = build(temporary)
            write_json(record, {"made_from": made_from, "array": fingerprint(target), "notes": notes})
        # Mapped before the lock is released: later replacements leave this mapping as it is.
        return np.load(target, mmap_mode="c", allow_pickle=False), notes


def _notes_if_current(target: Path, record: Path, made_from: object) -> Notes | None:
    known = read_json(record)
    if not isinstance(known, dict) or not target.is_file():
        return None
    if known.get("made_from") != made_from or known.get("array") != fingerprint(target):
        return None
    notes: Notes = known["notes"]
    return notes
