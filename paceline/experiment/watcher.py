"""Progress of an experiment, including the remaining time, as reported to a watcher such as the command line."""

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
    left_s: float | None  # None: not known yet


class ExperimentWatcher:
    """Ignores all reports; override the methods that you need."""

    def begun(self, standing: Standing, notes: list[str]) -> None:
        pass

    def advanced(self, standing: Standing) -> None:
        pass

    def finished(self, run: PlannedRun, row: Row) -> None:
        pass


class Estimate:
    """Estimates the remaining time from finished runs and from the progress of the others."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self.seconds: dict[str, list[float]] = {}  # of finished runs, by setting

    def learn(self, run: PlannedRun, seconds: float) -> None:
        self.seconds.setdefault(run.setting, []).append(seconds)

    def left_s(self, pending: Iterable[PlannedRun], running: list[tuple[PlannedRun, float, float]]) -> float | None:
        """`running` has seconds so far and the share that is done. Returns None if nothing is known yet."""
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
