"""What twice as many workers save: the share of the time by which they are faster, beside what others published."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from paceline.formatting import middle, percent
from paceline.reporting.figure import Cell, Column, Figure, View, table
from paceline.reporting.reaching import seconds_all_to_loss
from paceline.reporting.sections.scaling_lines import Level, Line
from paceline.results.comparison_rows import PublishedRow

UNIT = "% of the time, saved by doubling"
"""Published figures in this unit are drawn here, too."""

Seconds = Callable[[Level], float]


def savings(line: Line, seconds: Seconds) -> list[tuple[int, float]]:
    """(workers, share of the time that they save over half as many), where both are there."""
    known = {level.workers: seconds(level) for level in line.levels}
    pairs = [(n, known[n // 2], known[n]) for n in known if n % 2 == 0 and n // 2 in known]
    return [(n, 1.0 - after / before) for n, before, after in pairs if before > 0 and math.isfinite(after)]


def an_epoch(level: Level) -> float:
    """Seconds for as many samples."""
    return 1.0 / level.samples_per_s if level.samples_per_s > 0 else math.nan


def to_loss(loss: float) -> Seconds:
    return lambda level: middle(seconds_all_to_loss(level.runs, loss))


def doubling(lines: Sequence[Line], loss: float, published: Iterable[PublishedRow]) -> Figure | None:
    views = []
    for name, seconds in (("an epoch", an_epoch), (f"to a test loss of {loss:.2g}", to_loss(loss))):
        ours = [(line.name, n, 100 * share) for line in lines for n, share in savings(line, seconds)]
        if len({n for _, n, _ in ours}) < 2:
            continue
        rows: list[tuple[Cell, ...]] = [*ours]
        ends = sorted({n for _, n, _ in ours})
        said = [row for row in published if row.unit == UNIT]
        rows += [(f"{row.line or row.name}, published", n, row.published) for row in said for n in (ends[0], ends[-1])]
        styles = {str(row[0]): [place, int(", published" in str(row[0]))] for place, row in _numbered(rows)}
        data = table(("runs", Column("workers"), Column("saved", "%")), rows)
        options = {"line": "runs", "group": "runs", "x": "workers", "y": "saved", "whole": True, "styles": styles}
        views.append(View(name, data, options))
    if not views:
        return None
    best = max(((share, n, line) for line in lines for n, share in savings(line, an_epoch)), key=lambda e: e[0])
    says = f"At best, doubling to {best[1]} workers saves {percent(best[0], 0)} of an epoch's time ({best[2].name})."
    note = "How much less time so many workers take than half of them; 50 % is ideal, below 0 they are slower."
    return Figure("doubling", "What doubling the workers saves", "lines", tuple(views), says, note, choice="time of")


def _numbered(rows: Iterable[tuple[Cell, ...]]) -> Iterable[tuple[int, tuple[Cell, ...]]]:
    return enumerate({row[0]: row for row in rows}.values())
