"""Time, throughput and efficiency by number of workers, and the time saved by doubling it.

Efficiency is the speedup over the fewest workers divided by the increase in workers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from paceline.formatting import count, listed, median_of, percent, times
from paceline.reporting.colours import line_styles
from paceline.reporting.figure import Cell, Column, Figure, Section, Table, View, figure, section, table
from paceline.reporting.sections.by_setting import NOTE
from paceline.reporting.series import (
    Series,
    SeriesPoint,
    all_seconds_to_accuracy,
    all_seconds_to_loss,
    median_and_ends,
    series_by_workers,
    target_accuracy,
    target_loss,
)
from paceline.results.comparison_rows import PublishedRow
from paceline.results.noise import differs, unrepeated
from paceline.results.run_result import RunResult

UNIT = "% of the time, saved by doubling"  # published numbers in this unit are drawn, too

Seconds = Callable[[SeriesPoint], float]
Made = tuple[str, str, dict[str, str], dict[str, Any]]  # id, title, columns by view, options


def scaling(runs: Sequence[RunResult], published: Sequence[PublishedRow] = ()) -> Section | None:
    found = series_by_workers(runs)
    if not found:
        return None
    every = [run for series in found for point in series.points for run in point.runs]
    target, loss = target_accuracy(every), target_loss(every)
    data = _table(found, target, loss)
    both, to_loss = {"both": True}, {"": "time to loss"} if _comparable(found, loss) else {}
    made: list[Made] = [
        ("time-to-accuracy", f"Time to {percent(target, 0)} test accuracy", {"": "time to accuracy"}, both),
        ("time-to-loss", f"Time to a test loss of {loss:.2g}", to_loss, both),
        ("throughput", "Throughput", {"": "throughput"}, {"ideal": "ideal", **both}),
        ("efficiency", "Scaling efficiency", {"": "efficiency"}, {}),
        ("time-by-workers", "Time", {"training": "time", "epoch": "epoch"}, both),
        ("accuracy-by-workers", "Test accuracy", {"": "test accuracy"}, {}),
    ]
    clocks = {series.virtual for series in found}
    clock = "simulated" if clocks == {True} else "measured and simulated" if True in clocks else "measured"
    figures = []
    for name, title, columns, more in made:
        known = {view: y for view, y in columns.items() if sum(value is not None for value in data.values(y)) > 1}
        options = {"line": "runs", "x": "workers", "whole": True, "zero": True, **more}
        views = (
            View(view, data, {**options, "y": y, "low": f"{y}, min", "high": f"{y}, max"}) for view, y in known.items()
        )
        missing = name.startswith("time-to-") and any(None in data.values(y) for y in known.values())
        note = "Points are missing where fewer than half of the repetitions reach it." if missing else ""
        figures.append(figure(name, f"{title}, {clock}", "lines", views, note=note))
    figures.append(doubling_figure(found, loss, published))
    least = listed(sorted({series.points[0].workers for series in found}))
    note = f"Efficiency is the speedup over {least} worker{'s' * (least != '1')} divided by the increase in workers. "
    return section("scaling", "Scaling", (scaling_sentence(found), note + NOTE), blocks=figures)


def _comparable(found: Sequence[Series], loss: float) -> bool:
    """Whether times to a loss can be compared: all runs end near it, with at least three numbers of workers."""
    losses = [run.loss for series in found for point in series.points for run in point.runs if math.isfinite(run.loss)]
    return max(len(series.points) for series in found) > 2 and loss <= 3 * min(losses, default=0.0)


def scaling_sentence(found: Sequence[Series]) -> str:
    """The largest speedup among measured series, or among simulated ones if nothing was measured."""
    same = [series for series in found if not series.virtual] or list(found)
    series = max(same, key=lambda one: one.speed_up(one.fastest) if math.isfinite(one.speed_up(one.fastest)) else -1.0)
    point, base = series.fastest, series.points[0]
    clock = "In simulation, " if series.virtual else ""
    speeds = [run.samples_per_s for run in base.runs], [run.samples_per_s for run in point.runs]
    if point is base and not any(each.ranked for each in series.points[1:]):
        others = len(same) > 1 and not any(each.ranked for one in same for each in one.points[1:])
        whose = "" if others else f" of {series.name}"
        said = f"no run{whose} with more than {count(base.workers, 'worker')} learned enough to be ranked."
    elif point is base:
        said = f"training with {series.name} is fastest with {count(base.workers, 'worker')}."
    elif differs(*speeds) is False:
        said = f"{series.name} is as fast with {count(point.workers, 'worker')} as with {base.workers}, within noise."
    else:
        speed = f"{times(series.speed_up(point))} as fast with {count(point.workers, 'worker')} as with {base.workers}"
        efficiency = percent(series.efficiency(point), 0)
        said = f"{series.name} trains {speed}{unrepeated(*speeds)}; the efficiency is {efficiency}."
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
            speeds = median_and_ends([run.samples_per_s for run in point.runs])
            ideal = base.samples_per_s * point.workers / base.workers
            values = (
                [run.seconds for run in point.runs],
                [run.seconds / len(run.curve) for run in point.runs if run.curve],
                [100 * run.accuracy for run in point.runs if run.labelled],
                all_seconds_to_accuracy(point.runs, target),
                all_seconds_to_loss(point.runs, loss),
            )
            rows.append((
                series.name, point.workers, len(point.runs), *speeds, ideal,
                *(100 * speed / ideal for speed in speeds), *(end for some in values for end in median_and_ends(some)),
            ))  # fmt: skip
    return table(columns, rows)


def savings(series: Series, seconds: Seconds) -> list[tuple[int, float]]:
    """(workers, share of the time saved over half as many) for ranked points."""
    known = {point.workers: s for point in series.points if point.ranked and math.isfinite(s := seconds(point))}
    return [(n, 1.0 - known[n] / known[n // 2]) for n in known if n % 2 == 0 and known.get(n // 2, 0.0) > 0]


def per_sample(point: SeriesPoint) -> float:
    return 1.0 / point.samples_per_s if point.samples_per_s > 0 else math.nan


def to_loss(loss: float) -> Seconds:
    return lambda point: median_of(all_seconds_to_loss(point.runs, loss))


def doubling_figure(found: Sequence[Series], loss: float, published: Iterable[PublishedRow]) -> Figure | None:
    views, said = [], [row for row in published if row.unit == UNIT]
    for name, seconds in (("epoch time", per_sample), (f"time to a test loss of {loss:.2g}", to_loss(loss))):
        ours = [(series.name, n, 100 * share) for series in found for n, share in savings(series, seconds)]
        if len({n for _, n, _ in ours}) < 2:
            continue
        ends = min(n for _, n, _ in ours), max(n for _, n, _ in ours)
        theirs = [(f"{row.line or row.name}, published", n, row.published) for row in said for n in ends]
        data = table(("runs", Column("workers"), Column("saved", "%")), [*ours, *theirs])
        styles = line_styles(data.values("runs"), ", published")
        options = {"line": "runs", "x": "workers", "y": "saved", "whole": True, "styles": styles}
        views.append(View(name, data, options))
    shares = sorted((share, n, one.name) for one in found for n, share in savings(one, per_sample))
    says = "".join(
        f"At best, doubling to {n} workers saves {percent(share, 0)} of the epoch time ({name})."
        for share, n, name in shares[-1:]
    )
    note = "Time saved over half as many workers. 50 % is ideal; below 0, doubling makes training slower."
    return figure("doubling", "Time saved by doubling the workers", "lines", views, says, note=note, choice="of")
