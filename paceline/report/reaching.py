"""When runs reach an accuracy: speed alone says little where accuracy is lost on the way."""

from __future__ import annotations

import math
from collections.abc import Sequence

from paceline.report.shown_run import ShownRun
from paceline.report.words import middle


def target_accuracy(runs: Sequence[ShownRun]) -> float:
    """A whole percentage that half of the runs end at or above, so that their times to it can be compared."""
    known = middle(run.accuracy for run in runs if run.status == "finished")
    return math.floor(100 * known) / 100 if math.isfinite(known) else math.nan


def seconds_to(run: ShownRun, accuracy: float) -> float:
    """When a test first showed so high an accuracy."""
    return next((p.seconds for p in run.curve if p.test_accuracy >= accuracy), math.nan)


def seconds_all_to(runs: Sequence[ShownRun], accuracy: float) -> list[float]:
    """When each of some repetitions reached it; nothing, if fewer than half of them did."""
    reached = [s for run in runs if math.isfinite(s := seconds_to(run, accuracy))]
    return reached if 2 * len(reached) >= len(runs) else []
