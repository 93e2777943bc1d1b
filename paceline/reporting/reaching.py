"""When runs reach an accuracy: speed alone says little where accuracy is lost on the way."""

from __future__ import annotations

import math
from collections.abc import Sequence

from paceline.formatting import middle
from paceline.results.run_result import RunResult


def target_accuracy(runs: Sequence[RunResult]) -> float:
    """A whole percentage that half of the runs end at or above, so that their times to it can be compared."""
    known = middle(run.accuracy for run in runs if run.status == "finished")
    return math.floor(100 * known) / 100 if math.isfinite(known) else math.nan


def seconds_to(run: RunResult, accuracy: float) -> float:
    """When a test first showed so high an accuracy."""
    return next((p.seconds for p in run.curve if p.test_accuracy >= accuracy), math.nan)


def seconds_all_to(runs: Sequence[RunResult], accuracy: float) -> list[float]:
    """When each of some repetitions reached it; nothing, if fewer than half of them did."""
    reached = [s for run in runs if math.isfinite(s := seconds_to(run, accuracy))]
    return reached if 2 * len(reached) >= len(runs) else []


def target_loss(runs: Sequence[RunResult]) -> float:
    """Two digits of a test loss that most of the runs reach: all that end below twice the median of them."""
    losses = [run.loss for run in runs if run.status == "finished" and math.isfinite(run.loss)]
    if not losses or not middle(losses) > 0:
        return math.nan
    highest = max(loss for loss in losses if loss <= 2 * middle(losses))
    step = 10.0 ** (math.floor(math.log10(highest)) - 1)
    return math.ceil(highest / step) * step


def seconds_to_loss(run: RunResult, loss: float) -> float:
    """When the test loss fell to so much; between two tests it is taken to fall evenly."""
    before = None
    for point in run.curve:
        if point.test_loss <= loss:
            if before is None or not before.test_loss > loss:
                return point.seconds
            share = (before.test_loss - loss) / (before.test_loss - point.test_loss)
            return before.seconds + share * (point.seconds - before.seconds)
        before = point
    return math.nan


def seconds_all_to_loss(runs: Sequence[RunResult], loss: float) -> list[float]:
    reached = [s for run in runs if math.isfinite(s := seconds_to_loss(run, loss))]
    return reached if 2 * len(reached) >= len(runs) else []
