"""When runs reach an accuracy or a loss: throughput alone says little where accuracy is lost."""

from __future__ import annotations

import math
from collections.abc import Sequence

from paceline.formatting import median_of
from paceline.results.run_result import RunResult


def target_accuracy(runs: Sequence[RunResult]) -> float:
    """A whole percentage that half of the runs end at or above, so that their times to it can be compared."""
    known = median_of(run.accuracy for run in runs if run.ranked)
    return math.floor(100 * known) / 100 if math.isfinite(known) else math.nan


def seconds_to_accuracy(run: RunResult, accuracy: float) -> float:
    """When a validation first showed the accuracy."""
    return next((p.seconds for p in run.curve if p.test_accuracy >= accuracy), math.nan)


def all_seconds_to_accuracy(runs: Sequence[RunResult], accuracy: float) -> list[float]:
    """When each repetition reached it; empty if fewer than half of them did."""
    reached = [s for run in runs if math.isfinite(s := seconds_to_accuracy(run, accuracy))]
    return reached if 2 * len(reached) >= len(runs) else []


def target_loss(runs: Sequence[RunResult]) -> float:
    """A test loss, to two digits, that most of the runs reach: all that end below twice the median."""
    losses = [run.loss for run in runs if run.status == "finished" and math.isfinite(run.loss)]
    if not losses or not median_of(losses) > 0:
        return math.nan
    highest = max(loss for loss in losses if loss <= 2 * median_of(losses))
    step = 10.0 ** (math.floor(math.log10(highest)) - 1)
    return math.ceil(highest / step) * step


def seconds_to_loss(run: RunResult, loss: float) -> float:
    """When the test loss fell to this value, interpolated linearly between two validations."""
    before = None
    for point in run.curve:
        if point.test_loss <= loss:
            if before is None or not before.test_loss > loss:
                return point.seconds
            share = (before.test_loss - loss) / (before.test_loss - point.test_loss)
            return before.seconds + share * (point.seconds - before.seconds)
        before = point
    return math.nan


def all_seconds_to_loss(runs: Sequence[RunResult], loss: float) -> list[float]:
    reached = [s for run in runs if math.isfinite(s := seconds_to_loss(run, loss))]
    return reached if 2 * len(reached) >= len(runs) else []
