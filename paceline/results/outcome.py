"""One run of an experiment: as it is planned, and what became of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from paceline.workload import Workload

FILE = "outcome.json"


@dataclass(frozen=True)
class PlannedRun:
    number: int
    """Its place in the tables."""
    setting: str
    """A hash of the settings, which its repetitions share."""
    repetition: int
    """Counted from 1."""
    trial: int | None
    """Of a random search, counted from 1."""
    settings: dict[str, Any]
    """What the experiment says of it, as far as it applies to a run of its kind."""
    workload: Workload
    workers: int
    label: str
    """What distinguishes it from the others, for people."""

    @property
    def id(self) -> str:
        return f"{self.setting}-{self.repetition}"

    @property
    def kind(self) -> str:
        return str(self.settings["kind"])

    @property
    def name(self) -> str:
        """Of its directory: readable, and unlike any other's."""
        word = re.sub(r"[^A-Za-z0-9.]+", "-", self.label).strip("-.")[:60].strip("-.")
        return f"{word}-{self.id}" if word else self.id


@dataclass(frozen=True)
class RunOutcome:
    """The record that is written last, and says that the run is done."""

    run: PlannedRun
    planned: int
    """How many runs the experiment has."""
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
