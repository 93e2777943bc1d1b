"""What a watcher of an experiment is told: the command line draws its progress from it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

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


class ExperimentWatcher:
    """Ignores everything it is told; a watcher overrides what it wants to know."""

    def begun(self, standing: Standing, notes: list[str]) -> None:
        pass

    def advanced(self, standing: Standing) -> None:
        pass

    def finished(self, run: PlannedRun, row: Row) -> None:
        pass
