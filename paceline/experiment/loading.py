"""Loads anything that was saved, by one call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from paceline import record
from paceline.errors import RecordError
from paceline.experiment import outcome
from paceline.experiment.collecting import collect
from paceline.experiment.places import EXPERIMENT
from paceline.experiment.rows import MEASUREMENT, RECORD

FILES = (RECORD, MEASUREMENT, outcome.FILE)


def load(path: str | Path) -> Any:
    """A record: of a file or of a directory, whatever it holds. Of an experiment's directory, all its results."""
    path = Path(path)
    if (path / EXPERIMENT).exists():
        return collect(path)
    if path.is_dir():
        found = next((path / name for name in FILES if (path / name).exists()), None)
        if found is None:
            raise RecordError(f"no record at {path / RECORD}")
        return record.load(found)
    return record.load(path)
