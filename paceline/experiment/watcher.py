"""What is told to whoever watches an experiment: the command line draws its progress from it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from paceline.experiment.planning import PlannedRun
from paceline.results.run_row import Row


@dataclass(frozen=True)
class Standing:
    directory: Path
    done: int
    planned: int
    failed: int
    running: tuple[PlannedRun, ...]
    left_s: float | None
    """None: nothing is known yet."""


class ExperimentWatcher(Protocol):
    def begun(self, standing: Standing, notes: list[str]) -> None: ...

    def advanced(self, standing: Standing) -> None: ...

    def finished(self, run: PlannedRun, row: Row) -> None: ...


class SilentExperimentWatcher:
    def begun(self, standing: Standing, notes: list[str]) -> None:
        pass

    def advanced(self, standing: Standing) -> None:
        pass

    def finished(self, run: PlannedRun, row: Row) -> None:
        pass
