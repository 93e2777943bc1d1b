"""Series: runs that differ only in one number, such as workers or batch size; times to reach an accuracy or a loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from paceline.formatting import as_number, median_of
from paceline.results.labels import REPETITION, differing, grouped, telling_keys, values
from paceline.results.run_result import LOCAL, ONE_PROCESS, RunResult, group_name

CHOSEN = ("threads", "step", "processor", REPETITION)  # chosen by Paceline to suit the setting
OF_WORKERS = ("workers", "groups", REPETITION, "threads", "step")  # may change along a series of workers
TIED = ("lr", "batch", "epochs", "schedule")  # may also change if each number of workers has one value
NOT_A_SERIES = ("top", "epochs", "PyTorch", "Paceline", "workers", "groups")
FEWEST_VALUES = 3


@dataclass(frozen=True)
class SeriesPoint:
    """All repetitions with the same value."""

    at: float
    runs: tuple[RunResult, ...]

    @property
    def workers(self) -> int:
        return self.runs[0].workers

    @property
    def ranked(self) -> bool:
        return any(run.ranked for run in self.runs)

    def median(self, of: Callable[[RunResult], float]) -> float:
        return median_of(of(run) for run in self.runs)

    @property
    def samples_per_s(self) -> float:
        return self.median(lambda run: run.samples_per_s)

    @property
    def accuracy(self) -> float:
        return self.median(lambda run: run.accuracy)


@dataclass(frozen=True)
class Series:
    name: str
    points: tuple[SeriesPoint, ...]

    @classmethod
    def of(cls, runs: Iterable[RunResult], at: Callable[[RunResult], float]) -> Series:
        points = grouped(runs, at)
        return cls("", tuple(SeriesPoint(place, tuple(points[place])) for place in sorted(points)))

    @property
    def first(self) -> RunResult:
        return self.points[0].runs[0]

    @property
    def virtual(self) -> bool:
        return self.points[-1].runs[-1].virtual

    def speed_up(self, point: SeriesPoint) -> float:
        base = self.points[0].samples_per_s
        return point.samples_per_s / base if base > 0 else math.nan

    def efficiency(self, point: SeriesPoint) -> float:
        return self.speed_up(point) * self.points[0].workers / point.workers

    @property
    def fastest(self) -> SeriesPoint:
        """The ranked point with the highest throughput."""
        known = [point for point in self.points if math.isfinite(point.samples_per_s)]
        ranked = [point for point in known if point.ranked]
        return max(ranked or known or self.points, key=lambda point: point.samples_per_s)


def epoch_s(run: RunResult) -> float:
    """Training time per epoch on the driver's clock; the median if epochs were timed separately."""
    if run.run is None or not run.curve:
        return math.nan
    timed = [span.duration_s for span in run.trace.spans if span.part == "train" and run.driver == ONE_PROCESS]
    if run.driver == LOCAL:
        timed = [epoch.wall_s for epoch in run.run.epochs]
    return median_of(timed) if timed else run.seconds / len(run.curve)


def numeric_settings(runs: Sequence[RunResult]) -> list[str]:
    """Settings with at least three values, all numeric; without the number of workers."""
    found = []
    for key in differing([run.settings for run in runs]):
        known = {as_number(run.settings[key]) for run in runs if run.settings.get(key) not in (None, "default")}
        numbers = all(not isinstance(value, str) for value in known) and len(known) >= FEWEST_VALUES
        if numbers and key not in (*CHOSEN, *NOT_A_SERIES):
            found.append(key)
    return found


def series_by(runs: Sequence[RunResult], key: str) -> list[Series]:
    """Finished runs that differ only in `key`."""
    usable = [run for run in runs if run.settings.get(key) not in (None, "default") and run.status == "finished"]
    others = [k for k in differing([run.settings for run in usable]) if k not in (key, *CHOSEN)]
    members = grouped(usable, lambda run: values(run.settings, others)).values()
    found = [Series.of(some, lambda run: float(run.settings[key])) for some in members]
    found = [series for series in found if len(series.points) >= FEWEST_VALUES]
    # A single series is named if there are other runs.
    named = [series.first for series in found] if len(found) > 1 else usable
    telling = telling_keys([run.settings for run in named], (key, *CHOSEN))
    return [replace(series, name=group_name(series.first, telling) if telling else "") for series in found]


def series_by_workers(runs: Sequence[RunResult]) -> list[Series]:
    """Finished runs that differ only in the number of workers and in what must change with it."""
    usable = [run for run in runs if run.samples_per_s > 0 and run.status == "finished"]
    keys = _telling(usable)
    members = grouped(usable, lambda run: values(run.settings, keys))
    alone = [run for run in usable if run.driver == ONE_PROCESS]
    made = []
    for found in members.values():
        if found[0].driver == LOCAL and not any(run.workers == 1 for run in found):
            found = [*(run for run in alone if _same_work(run, found[0])), *found]
        made.append(Series.of(found, lambda run: run.workers))
    made = [series for series in made if len(series.points) > 1]
    ends = [series.points[-1].runs[-1] for series in made]
    telling = telling_keys([run.settings for run in ends], OF_WORKERS)
    names = [group_name(end, telling) if telling else end.settings.get("strategy", end.driver) for end in ends]
    return [
        replace(series, name=name if names.count(name) == 1 else f"{name} ({place})")
        for place, (series, name) in enumerate(zip(made, names, strict=True), 1)
    ]


def _telling(runs: Sequence[RunResult]) -> list[str]:
    """Settings that distinguish series; a learning rate that follows from the number of workers does not."""
    keys = [key for key in differing([run.settings for run in runs]) if key not in OF_WORKERS]
    for key in [key for key in keys if key in TIED]:
        others = [other for other in keys if other != key]
        same = grouped(runs, lambda run: (str(run.workers), *values(run.settings, others)))  # noqa: B023
        if len(same) > 1 and all(len({run.settings.get(key) for run in some}) == 1 for some in same.values()):
            keys = others
    return keys


def _same_work(alone: RunResult, other: RunResult) -> bool:
    keys = [key for key in alone.settings if key not in (*OF_WORKERS, "driver")]
    return all(alone.settings[key] == other.settings.get(key) for key in keys)


def median_and_ends(values: Iterable[float]) -> tuple[float, float, float]:
    """Median, minimum and maximum of the finite values."""
    known = [value for value in values if math.isfinite(value)] or [math.nan]
    return median_of(known), min(known), max(known)


def target_accuracy(runs: Sequence[RunResult]) -> float:
    """A whole percentage that half of the runs reach, so that their times to it can be compared."""
    known = median_of(run.accuracy for run in runs if run.ranked)
    return math.floor(100 * known) / 100 if math.isfinite(known) else math.nan


def seconds_to_accuracy(run: RunResult, accuracy: float) -> float:
    """Time of the first validation with at least this accuracy."""
    return next((p.seconds for p in run.curve if p.test_accuracy >= accuracy), math.nan)


def all_seconds_to_accuracy(runs: Sequence[RunResult], accuracy: float) -> list[float]:
    return _if_most_reach_it([seconds_to_accuracy(run, accuracy) for run in runs])


def target_loss(runs: Sequence[RunResult]) -> float:
    """A test loss, to two digits, that most of the runs reach: all that end below twice the median."""
    losses = [run.loss for run in runs if run.status == "finished" and math.isfinite(run.loss)]
    if not losses or not median_of(losses) > 0:
        return math.nan
    highest = max(loss for loss in losses if loss <= 2 * median_of(losses))
    step = 10.0 ** (math.floor(math.log10(highest)) - 1)
    return math.ceil(highest / step) * step


def seconds_to_loss(run: RunResult, loss: float) -> float:
    """Time at which the test loss fell to this value, interpolated between validations."""
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
    return _if_most_reach_it([seconds_to_loss(run, loss) for run in runs])


def _if_most_reach_it(seconds: Sequence[float]) -> list[float]:
    """The times of the repetitions that reached a target; empty if fewer than half did."""
    reached = [s for s in seconds if math.isfinite(s)]
    return reached if 2 * len(reached) >= len(seconds) else []
