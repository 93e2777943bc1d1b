"""What became of one run of an experiment: the record that is written last, and says that the run is done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paceline.workload import Workload

FILE = "outcome.json"
STATUSES = ("finished", "diverged", "failed")


@dataclass(frozen=True)
class RunOutcome:
    run: str
    """The id of the planned run."""
    number: int
    """Its place in the tables."""
    planned: int
    """How many runs the experiment has."""
    setting: str
    repetition: int
    trial: int | None
    settings: dict[str, Any]
    workload: Workload
    workers: int
    label: str
    status: str
    """finished, diverged (a result too) or failed."""
    error: str = ""
    started: str = ""
    """Local time, with its offset."""
    process_s: float = 0.0
    """From the start of its process to its end, loading and writing included."""
    cpu_s: float = 0.0
    peak_memory_bytes: int = 0
    """Of the largest of its processes."""
    cores: int = 0
    """That it was given."""
