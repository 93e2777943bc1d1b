"""What a watcher of an experiment is told, the remaining time included: the command line draws its progress from it."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from paceline.results.outcome import PlannedRun
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


class Estimate:
    """The remaining time, from the runs that are done and from how far the others are."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self.seconds: dict[str, list[float]] = {}
        """Of finished runs, by setting."""

    def learn(self, run: PlannedRun, seconds: float) -> None:
        self.seconds.setdefault(run.setting, []).append(seconds)

    def left_s(self, pending: Iterable[PlannedRun], running: list[tuple[PlannedRun, float, float]]) -> float | None:
        """Of `running`: seconds so far, and the part that is done. None: nothing is known yet."""
        known = [statistics.fmean(found) for found in self.seconds.values()]
        known += [seconds / part for _, seconds, part in running if part > 0.02]
        if not known:
            return None
        usual = statistics.fmean(known)

        def expected(run: PlannedRun) -> float:
            return statistics.fmean(self.seconds[run.setting]) if run.setting in self.seconds else usual

        left = sum(expected(run) for run in pending)
        for run, seconds, part in running:
            left += seconds * (1 - part) / part if part > 0.02 else max(0.0, expected(run) - seconds)
        return left / self.jobs
