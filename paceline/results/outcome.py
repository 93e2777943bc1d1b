"""One run of an experiment: its plan and its outcome."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from paceline.workload import Workload

FILE = "outcome.json"


@dataclass(frozen=True)
class PlannedRun:
    number: int  # position in the tables
    setting: str  # hash of the settings, shared by its repetitions
    repetition: int  # from 1
    trial: int | None  # of a random search, from 1
    settings: dict[str, Any]  # those of the experiment that apply to this kind of run
    workload: Workload
    workers: int
    label: str  # what distinguishes it from the other runs

    @property
    def id(self) -> str:
        return f"{self.setting}-{self.repetition}"

    @property
    def kind(self) -> str:
        return str(self.settings["kind"])

    @property
    def name(self) -> str:
        """The name of its directory: readable and unique."""
        word = re.sub(r"[^A-Za-z0-9.]+", "-", self.label).strip("-.")[:60].strip("-.")
        return f"{word}-{self.id}" if word else self.id


@dataclass(frozen=True)
class RunOutcome:
    """The record that is written last and marks the run as done."""

    run: PlannedRun
    planned: int  # number of runs of the experiment
    status: str  # finished, diverged or failed
    error: str = ""
    started: str = ""  # local time with UTC offset
    process_s: float = 0.0  # lifetime of its process, including loading and writing
    cpu_s: float = 0.0
    peak_memory_bytes: int = 0  # of its largest process
    cores: int = 0  # assigned to it
