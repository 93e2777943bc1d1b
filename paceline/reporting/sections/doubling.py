"""Time saved by doubling the workers, beside what others published."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from paceline.formatting import median_of, percent
from paceline.reporting.figure import Cell, Column, Figure, View, table
from paceline.reporting.series import Series, SeriesPoint
from paceline.reporting.time_to_target import all_seconds_to_loss
from paceline.results.comparison_rows import PublishedRow

UNIT = "% of the time, saved by doubling"
"""Published numbers in this unit are drawn here, too."""

Seconds = Callable[[SeriesPoint], float]


def savings(series: Series, seconds: Seconds) -> list[tuple[int, float]]:
    """(workers, share of the time that they save over half as many), where both are there and may be ranked."""
    known = {point.workers: seconds(point) for point in series.points if point.ranked}
    pairs = [(n, known[n // 2], known[n]) for n in known if n % 2 == 0 and n // 2 in known]
    return [(n, 1.0 - after / before) for n, before, after in pairs if before > 0 and math.isfinite(after)]


def per_sample(point: SeriesPoint) -> float:
    return 1.0 / point.samples_per_s if point.samples_per_s > 0 else math.nan


def to_loss(loss: float) -> Seconds:
    return lambda point: median_of(all_seconds_to_loss(point.runs, loss))


def doubling(found: Sequence[Series], loss: float, published: Iterable[PublishedRow]) -> Figure | None:
    views = []
    for name, seconds in (("epoch time", per_sample), (f"time to a test loss of {loss:.2g}", to_loss(loss))):
        ours = [(series.name, n, 100 * share) for series in found for n, share in savings(series, seconds)]
        if len({n for _, n, _ in ours}) < 2:
            continue
        rows: list[tuple[Cell, ...]] = [*ours]
        ends = sorted({n for _, n, _ in ours})
        said = [row for row in published if row.unit == UNIT]
        rows += [(f"{row.line or row.name}, published", n, row.published) for row in said for n in (ends[0], ends[-1])]
        styles = {
            str(name): [place, int(", published" in str(name))] for place, name in enumerate({r[0]: 0 for r in rows})
        }
        data = table(("runs", Column("workers"), Column("saved", "%")), rows)
        options = {"line": "runs", "group": "runs", "x": "workers", "y": "saved", "whole": True, "styles": styles}
        views.append(View(name, data, options))
    if not views:
        return None
    best = max(((share, n, one) for one in found for n, share in savings(one, per_sample)), key=lambda e: e[0])
    says = f"At best, doubling to {best[1]} workers saves {percent(best[0], 0)} of the epoch time ({best[2].name})."
    note = "Time saved over half as many workers. 50 % is ideal; below 0, doubling makes training slower."
    return Figure("doubling", "Time saved by doubling the workers", "lines", tuple(views), says, note, choice="of")
