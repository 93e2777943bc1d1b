"""Loads anything that was saved, by one call."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from paceline import record
from paceline.errors import RecordError
from paceline.results import outcome
from paceline.results.records import EXPERIMENT, MEASUREMENT, RECORD, looks_like_a_record
from paceline.results.table import collect
from paceline.training.run import Run

FILES = (RECORD, MEASUREMENT, outcome.FILE)
"""What a directory is about, the most telling first; others may lie beside it."""


def load(path: str | Path) -> Any:
    """Load a record from its file or its directory, whatever it holds; of an experiment's directory, all its results.

    >>> run = paceline.train("mlp", data="digits", epochs=1, out="runs/loaded")
    >>> paceline.load("runs/loaded").test_accuracy == run.test_accuracy
    True
    """
    if not isinstance(path, str | Path):
        raise RecordError(f"path={path!r:.60} should be the file or directory of a record")
    path = Path(path)
    if (path / EXPERIMENT).exists():
        return collect(path)
    file = _file_in(path) if path.is_dir() else path
    found = record.load(file)
    if isinstance(found, Run):  # which may have been moved since
        return replace(found, directory=str(file.resolve().parent))
    return found


def _file_in(directory: Path) -> Path:
    """The record that a directory stands for: one of a usual name, else the only one there is."""
    try:
        usual = [directory / name for name in FILES if (directory / name).exists()]
        found = usual[:1] or [file for file in sorted(directory.glob("*.json")) if looks_like_a_record(file)]
    except OSError as error:
        raise RecordError(f"cannot read {directory}: {error.strerror}") from error
    if not found:
        raise RecordError(f"no record at {directory / RECORD}")
    if len(found) > 1:
        raise RecordError(f"{directory} holds several records: name {' or '.join(file.name for file in found)}")
    return found[0]
