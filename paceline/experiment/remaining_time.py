"""How long an experiment still takes, from the runs that are done and from how far the others are."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from paceline.experiment.planning import PlannedRun


class Estimate:
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
