"""Time, throughput and efficiency by number of workers, where runs differ in it.

Efficiency is the throughput divided by that of the fewest workers times how many times as many workers there are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from paceline.formatting import count, listed, median_of, percent, times
from paceline.reporting.figure import Cell, Column, Figure, Section, Table, View, table
from paceline.reporting.sections.by_setting import NOTE
from paceline.reporting.sections.doubling import doubling
from paceline.reporting.series import Series, series_by_workers
from paceline.reporting.time_to_target import (
    all_seconds_to_accuracy,
    all_seconds_to_loss,
    target_accuracy,
    target_loss,
)
from paceline.results.comparison_rows import PublishedRow
from paceline.results.run_result import RunResult

Made = tuple[str, str, dict[str, str], dict[str, Any]]
"""A figure: id, title, columns by the names of its views, and options."""


def scaling(runs: Sequence[RunResult], published: Sequence[PublishedRow] = ()) -> Section | None:
    found = series_by_workers(runs)
    if not found:
        return None
    every = [run for series in found for point in series.points for run in point.runs]
    target, loss = target_accuracy(every), target_loss(every)
    data = _table(found, target, loss)
    both = {"both": True}
    made: list[Made] = [
        ("throughput", "Throughput", {"": "throughput"}, {"ideal": "ideal", **both}),
        ("efficiency", "Scaling efficiency", {"": "efficiency"}, {}),
        ("time-by-workers", "Time", {"training": "time", "epoch": "epoch"}, both),
    ]
    if _several(data, "test accuracy"):
        made.append(("accuracy-by-workers", "Test accuracy", {"": "test accuracy"}, {}))
    if _several(data, "time to loss") and _comparable(found, loss):
        made.insert(0, ("time-to-loss", f"Time to a test loss of {loss:.2g}", {"": "time to loss"}, both))
    if _several(data, "time to accuracy"):
        title = f"Time to {percent(target, 0)} test accuracy"
        made.insert(0, ("time-to-accuracy", title, {"": "time to accuracy"}, both))
    figures = []
    for name, title, columns, more in made:
        known = {view: y for view, y in columns.items() if _several(data, y)} or columns
        views = tuple(View(view, data, _options(y, more)) for view, y in known.items())
        missing = name.startswith("time-to-") and any(None in data.values(y) for y in known.values())
        note = "No point: fewer than half of the repetitions reach it." if missing else ""
        figures.append(Figure(name, _clocked(title, found), "lines", views, note=note))
    if saved := doubling(found, loss, published):
        figures.append(saved)
    least = listed(sorted({series.points[0].workers for series in found}))
    note = f"Efficiency is the speedup over {least} worker{'s' * (least != '1')} divided by the increase in workers. "
    return Section("scaling", "Scaling", (scaling_sentence(found), note + NOTE), blocks=tuple(figures))


def _clocked(title: str, found: Sequence[Series]) -> str:
    clocks = {series.virtual for series in found}
    return f"{title}, {'simulated' if clocks == {True} else 'measured and simulated' if True in clocks else 'measured'}"


def _several(data: Table, column: str) -> bool:
    """Whether there is more than one value to draw."""
    return sum(value is not None for value in data.values(column)) > 1


def _comparable(found: Sequence[Series], loss: float) -> bool:
    """Whether a loss means the same to all: the runs end near each other, with several numbers of workers."""
    losses = [run.loss for series in found for point in series.points for run in point.runs if math.isfinite(run.loss)]
    return max(len(series.points) for series in found) > 2 and loss <= 3 * min(losses, default=0.0)


def _options(y: str, more: dict[str, Any]) -> dict[str, Any]:
    ends = {"low": f"{y}, min", "high": f"{y}, max"}
    return {"line": "runs", "group": "runs", "x": "workers", "y": y, **ends, "whole": True, "zero": True, **more}


def scaling_sentence(found: Sequence[Series]) -> str:
    """The largest speedup among measured series, or among simulated ones if nothing was measured."""
    same = [series for series in found if not series.virtual] or list(found)
    series = max(same, key=lambda one: one.speed_up(one.fastest) if math.isfinite(one.speed_up(one.fastest)) else -1.0)
    point, base = series.fastest, series.points[0]
    clock = "In simulation, " if series.virtual else ""
    if point is base:
        said = f"more workers do not make {series.name} faster than {count(base.workers, 'worker')}."
    else:
        speed = f"{times(series.speed_up(point))} as fast with {count(point.workers, 'worker')} as with {base.workers}"
        said = f"{series.name} trains {speed} ({percent(series.efficiency(point), 0)} efficiency)."
    said = f"{clock}{said}"
    return f"{said[0].upper()}{said[1:]}" if point is base or clock else said


def _spread(name: str, unit: str = "") -> tuple[Column, Column, Column]:
    return Column(name, unit), Column(f"{name}, min", unit), Column(f"{name}, max", unit)


def _table(found: Sequence[Series], target: float, loss: float) -> Table:
    columns = (
        "runs", "workers", "repetitions", *_spread("throughput", "samples/s"), Column("ideal", "samples/s"),
        *_spread("efficiency", "%"), *_spread("time", "s"), *_spread("epoch", "s"), *_spread("test accuracy", "%"),
        *_spread("time to accuracy", "s"), *_spread("time to loss", "s"),
    )  # fmt: skip
    rows: list[tuple[Cell, ...]] = []
    for series in found:
        base = series.points[0]
        for point in series.points:
            speeds = [run.samples_per_s for run in point.runs]
            ideal = base.samples_per_s * point.workers / base.workers
            values = (
                [run.seconds for run in point.runs],
                [run.seconds / len(run.curve) for run in point.runs if run.curve],
                [100 * run.accuracy for run in point.runs if run.labelled],
                all_seconds_to_accuracy(point.runs, target),
                all_seconds_to_loss(point.runs, loss),
            )
            rows.append((
                series.name, point.workers, len(point.runs), *_ends(speeds), ideal,
                *(100 * speed / ideal for speed in _ends(speeds)), *(end for some in values for end in _ends(some)),
            ))  # fmt: skip
    return table(columns, rows)


def _ends(values: Sequence[float]) -> tuple[float, float, float]:
    """Median, minimum and maximum."""
    return (median_of(values), min(values), max(values)) if values else (math.nan,) * 3
