"""Two figures for the same thing: predicted and measured, published and ours; and what it costs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TypeVar

from paceline.formatting import count, listed, middle, number, percent
from paceline.reporting.figure import Cell, Column, Figure, Section, TableBlock, View, table
from paceline.results.comparison_rows import CostRow, PredictionRow, PublishedRow
from paceline.results.run_result import RunResult

Row = TypeVar("Row")
MANY_ROWS = 30


def _by(rows: Iterable[Row], key: str) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(getattr(row, key), []).append(row)
    return found


def predictions(rows: Sequence[PredictionRow]) -> Section | None:
    if not rows:
        return None
    known = [row for row in rows if math.isfinite(row.error)]
    title = "Prediction beside reality" if known else "What is predicted"
    views = []
    for unit, some in _by(rows, "unit").items():
        named = [Column(name, unit) for name in ("predicted", "low", "high", "measured")]
        columns = (Column("what"), *named, Column("error", "%"), Column("inside the interval"))
        cells = [
            (row.name, row.predicted, row.low, row.high, row.measured, 100 * row.error,
             {None: None, True: "yes", False: "no"}[row.inside])
            for row in some
        ]  # fmt: skip
        options = {"category": "what", "value": "predicted", "low": "low", "high": "high", "other": "measured"}
        views.append(View(unit or "figures", table(columns, cells), options))
    says = prediction_sentence(rows)
    figure = Figure(
        "predictions", "Predicted and measured" if known else "Predicted", "intervals", tuple(views), says, wide=True
    )
    told: list[tuple[Column, list[Cell]]] = [
        (Column("what"), [row.name for row in rows]),
        (Column("unit"), [row.unit for row in rows]),
        (Column("predicted"), [row.predicted for row in rows]),
    ]
    if any(math.isfinite(row.low) or math.isfinite(row.high) for row in rows):
        told += [(Column("low"), [row.low for row in rows]), (Column("high"), [row.high for row in rows])]
    if known:
        told += [(Column("measured"), [row.measured for row in rows])]
        told += [(Column("error", "%"), [100 * row.error for row in rows])]
    listing = table([column for column, _ in told], list(zip(*(cells for _, cells in told), strict=True)))
    return Section(
        "predictions", title, (says,), blocks=(figure, TableBlock("prediction-rows", "Every prediction", listing))
    )


def prediction_sentence(rows: Sequence[PredictionRow]) -> str:
    known = [row for row in rows if math.isfinite(row.error)]
    if not known:
        return f"{count(len(rows), 'figure')} predicted, none of them measured yet."
    errors = [abs(row.error) for row in known]
    inside = [row.inside for row in known if row.inside is not None]
    if len(known) == 1:
        said = f"The prediction is off by {percent(errors[0], 1)}"
        return f"{said}, {'within' if inside[0] else 'beyond'} its interval." if inside else f"{said}."
    said = f"{count(len(known), 'prediction')} are off by {percent(middle(errors), 1)} in the median"
    said += f" and {percent(max(errors), 1)} at most"
    if inside:
        said += f"; {sum(inside)} of {len(inside)} intervals hold what was measured"
    return f"{said}."


def published(rows: Sequence[PublishedRow]) -> Section | None:
    if not rows:
        return None
    views = []
    for unit, some in _by((row for row in rows if not row.along), "unit").items():
        columns = ("what", Column("published", unit), Column("ours", unit), Column("ours over published"), "source")
        cells = [(row.name, row.published, row.ours, row.ratio, row.source) for row in some]
        options = {"category": "what", "values": ["published", "ours"]}
        views.append(View(unit or "figures", table(columns, cells), options))
    says = published_sentence(rows)
    bars = Figure("published", "Published and ours", "bars", tuple(views), says, choice="unit", wide=True)
    lines = published_lines(rows)
    figures = [figure for figure in (lines, bars if views else None) if figure is not None]
    all_cells = [(r.name, r.unit, r.published, r.ours, r.ratio, r.source) for r in rows]
    listing = table(("what", "unit", "published", "ours", "ours over published", "source"), all_cells)
    blocks: tuple[Figure | TableBlock, ...] = (
        *figures,
        TableBlock("published-rows", "Every figure", listing, folded=len(rows) > MANY_ROWS),
    )
    return Section("published", "Beside published figures", (says,), blocks=blocks)


def published_lines(rows: Sequence[PublishedRow]) -> Figure | None:
    """Figures that lie along an axis, as seconds against threads: what was published is dashed."""
    views = []
    for (along, unit), some in _along(rows).items():
        theirs = [(f"{row.line or row.source}, published", row.at, row.published) for row in some]
        ours = dict.fromkeys((row.our_line, row.at, row.ours) for row in some if math.isfinite(row.ours))
        cells = [*sorted(theirs, key=lambda cell: cell[1]), *sorted(ours, key=lambda cell: cell[1])]
        lines = list(dict.fromkeys(name for name, _, _ in cells))
        dashed = {name for name, _, _ in theirs}
        styles = {name: [place, int(name in dashed)] for place, name in enumerate(lines)}
        known = [value for _, _, value in cells if value > 0]
        options = {
            "line": "line", "group": "line", "x": along, "y": "value", "whole": True, "both": True,
            "zero": max(known, default=0.0) > 1.5 * min(known, default=0.0), "styles": styles,
        }  # fmt: skip
        data = table(("line", Column(along), Column("value", unit)), cells)
        views.append(View(f"{unit} against {along}", data, options))
    if not views:
        return None
    title = "Published and ours, along the way" if len(views) > 1 else f"Published and ours against {_first(rows)}"
    return Figure("published-lines", title, "lines", tuple(views), published_sentence(rows), wide=True)


def _along(rows: Sequence[PublishedRow]) -> dict[tuple[str, str], list[PublishedRow]]:
    found: dict[tuple[str, str], list[PublishedRow]] = {}
    for row in rows:
        if row.along and math.isfinite(row.at):
            found.setdefault((row.along, row.unit), []).append(row)
    return found


def _first(rows: Sequence[PublishedRow]) -> str:
    return next(row.along for row in rows if row.along)


def published_sentence(rows: Sequence[PublishedRow]) -> str:
    ratios = [row.ratio for row in rows if math.isfinite(row.ratio)]
    if not ratios:
        return f"{count(len(rows), 'published figure')}, none of ours beside {'it' if len(rows) == 1 else 'them'} yet."
    if len(ratios) == 1:
        row = next(row for row in rows if math.isfinite(row.ratio))
        return f"{row.name}: {number(row.ours)} here, {number(row.published)} published{_unit(row.unit)}."
    by_unit = _by((row for row in rows if math.isfinite(row.ratio)), "unit")
    ranges = {unit: _range([row.ratio for row in some]) for unit, some in by_unit.items()}
    if len(ranges) == 1:
        return f"Ours are {_range(ratios)} times the {len(ratios)} published figures."
    said = listed(f"{ends} times{_unit(unit)}" for unit, ends in ranges.items())
    return f"Ours beside {len(ratios)} published figures, by their units: {said}."


def _range(ratios: Sequence[float]) -> str:
    ends = dict.fromkeys(f"{end:.3g}" for end in (min(ratios), max(ratios)))
    return " to ".join(ends)


def _unit(unit: str) -> str:
    return f" ({unit})" if unit else ""


def costs(rows: Sequence[CostRow], runs: Sequence[RunResult], price: float | None) -> Section | None:
    if price is not None:
        rows = [*rows, *_of_runs(runs, price)]
    if not rows:
        return None
    views = []
    for currency, some in _by(rows, "currency").items():
        cells = [(row.name, row.amount, row.what) for row in some]
        data = table(("what", Column("cost", currency), "for"), cells)
        views.append(View(currency, data, {"category": "what", "values": ["cost"], "most": 40}))
    cheap = min(rows, key=lambda row: row.amount if math.isfinite(row.amount) else math.inf)
    dear = max(rows, key=lambda row: row.amount if math.isfinite(row.amount) else -math.inf)
    ends = [f"{_money(row.amount, row.currency)} for {row.name}" for row in (cheap, dear)]
    says = f"Costs lie between {ends[0]} and {ends[1]}."
    if len(rows) == 1:
        says = f"{cheap.name} costs {_money(cheap.amount, cheap.currency)}."
    note = "" if price is None else (
        f"A run is charged for its wall clock at {number(price)} an hour and machine; a simulated one for each of its "
        "workers over the simulated time."
    )  # fmt: skip
    figure = Figure("costs", "Cost", "bars", tuple(views), says, note, choice="currency", wide=True)
    return Section("costs", "What it costs", (says,), blocks=(figure,))


def _money(amount: float, currency: str) -> str:
    """US$ 2.50; US$ 1,272.17 a year."""
    symbol, _, span = currency.partition(" ")
    said = f"{amount:,.2f}" if math.isfinite(amount) and amount >= 0.01 else number(amount)
    return f"{symbol} {said} {span}".rstrip()


def _of_runs(runs: Sequence[RunResult], price: float) -> list[CostRow]:
    return [
        CostRow(run.label, price / 3600 * (run.seconds * run.workers if run.virtual else run.wall_s), what="the run")
        for run in runs
    ]
