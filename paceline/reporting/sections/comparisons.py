"""Predicted beside measured values, published beside ours, and costs."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from paceline.formatting import count, duration, median_of, number, percent
from paceline.reporting.colours import line_styles
from paceline.reporting.figure import Column, Figure, Section, TableBlock, View, figure, filled, section, table
from paceline.results.comparison_rows import CostRow, PredictionRow, PublishedRow
from paceline.results.labels import grouped
from paceline.results.run_result import RunResult

ITERATION = "an iteration of "  # how the name of a predicted iteration begins
INTERVAL = "Low and high are the ends of the 90 % interval. A positive error means that the prediction was too high."


def predictions(rows: Sequence[PredictionRow]) -> Section | None:
    if not rows:
        return None
    known = [row for row in rows if math.isfinite(row.error)]
    whose = {row.name.partition(" of ")[2] for row in rows}
    same = whose.pop() if len(rows) > 1 and len(whose) == 1 else ""  # of the same iteration: named in the title
    views = []
    for unit, some in grouped(rows, lambda row: row.unit).items():
        named = [Column(name, unit) for name in ("predicted", "low", "high", "measured")]
        columns = (Column("what"), *named, Column("error", "%"), Column("interval covers it"))
        cells = [
            (row.name.removesuffix(f" of {same}"), row.predicted, row.low, row.high, row.measured, 100 * row.error,
             {None: None, True: "yes", False: "no"}[row.inside])
            for row in some
        ]  # fmt: skip
        options = {"category": "what", "value": "predicted", "low": "low", "high": "high", "other": "measured"}
        views.append(View(unit or "numbers", table(columns, cells), options))
    says = prediction_sentence(rows)
    shown = ("Predicted and measured" if known else "Predicted") + (f": {same}" if same else "")
    drawn = Figure("predictions", shown, "intervals", tuple(views), says, wide=True)
    listings = (
        TableBlock("prediction-rows" + "-2" * place, "All predictions", filled(view.table), INTERVAL if known else "")
        for place, view in enumerate(views)
    )
    title = "Predictions and measurements" if known else "Predictions"
    return section("predictions", title, (says, coverage_sentence(rows)), blocks=(drawn, *listings))


def prediction_sentence(rows: Sequence[PredictionRow]) -> str:
    """How far the first prediction, or half of many, is from what was measured."""
    known = [row for row in rows if math.isfinite(row.error)]
    if not known:
        best = min(rows, key=lambda row: row.predicted)
        name = best.name.replace(ITERATION, ITERATION.capitalize())
        return f"{name} is predicted at {value_text(best.predicted, best.unit)}; nothing has been measured yet."
    if len(known) == 1 or known[0].name.startswith(ITERATION):
        row = known[0]
        side = "too high" if row.error > 0 else "too low"
        values = f"{value_text(row.predicted, row.unit)} predicted, {value_text(row.measured, row.unit)} measured"
        return f"The predicted {_short(row.name)} is {percent(abs(row.error))} {side}: {values}."
    errors = [abs(row.error) for row in known]
    return (
        f"Half of {count(len(known), 'prediction')} are within {percent(median_of(errors))} of the measurement; "
        f"the worst is off by {percent(max(errors))}."
    )


def coverage_sentence(rows: Sequence[PredictionRow]) -> str:
    """Errors and interval coverage of all predictions; empty for a single one without interval."""
    known = [row for row in rows if math.isfinite(row.error)]
    inside = [row.inside for row in known if row.inside is not None]
    said = [f"{sum(inside)} of {len(inside)} intervals cover the measured value"] if len(inside) > 1 else []
    if len(inside) == 1:
        said = [f"The 90 % interval {'covers' if inside[0] else 'does not cover'} the measured value"]
    if len(known) > 1:
        errors = [abs(row.error) for row in known]
        said.insert(0, f"The median error of {len(known)} predictions is {percent(median_of(errors))}")
    return "; ".join(said) + "." if said else ""


def value_text(value: float, unit: str) -> str:
    return duration(value) if unit == "s" else f"{number(value)} {unit}".rstrip()


def _short(name: str) -> str:
    """Without article and device: `iteration time of lenet5 at batch 32`."""
    return (
        re.sub(r"^an? | on .*$", "", name).replace("iteration", "iteration time").replace("epoch of", "epoch time of")
    )


def published(rows: Sequence[PublishedRow]) -> Section | None:
    if not rows:
        return None
    views = []
    names = {row.our_line for row in rows}
    ours = names.pop() if len(names) == 1 else "ours"
    for unit, some in grouped((row for row in rows if not row.along), lambda row: row.unit).items():
        columns = ("what", Column("published", unit), Column(ours, unit), Column("ours / published"), "source")
        cells = [(row.name, row.published, row.ours, row.ratio, row.source) for row in some]
        options = {"category": "what", "values": ["published", ours]}
        views.append(View(unit or "figures", table(columns, cells), options))
    says = published_sentence(rows)
    bars = figure("published", "Published and ours", "bars", views, says, choice="unit", wide=True)
    same = rows[0].unit if len({row.unit for row in rows}) == 1 else ""  # a common unit is part of the heading
    columns_of = ("what", "unit", Column("published", same), Column(ours, same), "ours / published")
    cells_of = [(r.name, "" if same else r.unit, r.published, r.ours, r.ratio) for r in rows]
    listing = filled(table(columns_of, cells_of))
    sources = "; ".join(dict.fromkeys(row.source for row in rows if row.source))
    note = f"Published: {sources}." if sources else ""
    block = TableBlock("published-rows", "All published numbers", listing, note)
    blocks = (published_lines(rows), bars, block)
    return section("published", "Comparison with published numbers", (says,), blocks=blocks)


def published_lines(rows: Sequence[PublishedRow]) -> Figure | None:
    """Numbers along an axis, such as seconds by threads; published ones are dashed."""
    views = []
    drawn = [row for row in rows if row.along and math.isfinite(row.at)]
    for (along, unit), some in grouped(drawn, lambda row: (row.along, row.unit)).items():
        theirs = [(f"{row.line or row.source}, published", row.at, row.published) for row in some]
        ours = dict.fromkeys((row.our_line, row.at, row.ours) for row in some if math.isfinite(row.ours))
        cells = [*sorted(theirs, key=lambda cell: cell[1]), *sorted(ours, key=lambda cell: cell[1])]
        known = [value for _, _, value in cells if value > 0]
        options = {
            "line": "line", "x": along, "y": "value", "whole": True, "both": True,
            "zero": max(known, default=0.0) > 1.5 * min(known, default=0.0),
            "styles": line_styles((name for name, _, _ in cells), ", published"),
        }  # fmt: skip
        data = table(("line", Column(along), Column("value", unit)), cells)
        views.append(View(f"{unit} by {along}", data, options))
    title = f"Published and ours by {drawn[0].along}" if len(views) == 1 else "Published and ours"
    return figure("published-lines", title, "lines", views, published_sentence(rows), wide=True)


def published_sentence(rows: Sequence[PublishedRow]) -> str:
    known = [row for row in rows if math.isfinite(row.ratio)]
    known = [row for row in known if not (row.along and row.ratio == 1)]  # the reference that others are relative to
    if not known:
        return f"{count(len(rows), 'published number')}; there is no value of ours to compare."
    if len(known) == 1:
        (row,) = known
        return f"{row.name}: {value_text(row.ours, row.unit)} here, {value_text(row.published, row.unit)} published."
    if len({row.unit for row in known}) == 1:
        ratios = sorted(row.ratio for row in known)
        ends = " to ".join(dict.fromkeys(f"{end:.3g}" for end in (ratios[0], ratios[-1])))
        simulated = "simulated " * all(row.our_line.endswith("simulated") for row in known)
        return f"Our {simulated}values are {ends} times the {len(known)} published ones."
    return f"{len(known)} published numbers have a counterpart here; they are compared one by one below."


def costs(rows: Sequence[CostRow], runs: Sequence[RunResult], price: float | None) -> Section | None:
    if price is not None:
        charged = [(run.label, run.seconds * run.workers if run.virtual else run.wall_s) for run in runs]
        rows = [*rows, *(CostRow(label, price / 3600 * seconds, what="run") for label, seconds in charged)]
    if not rows:
        return None
    views = []
    for currency, some in grouped(rows, lambda row: row.currency).items():
        cells = [(row.name, row.amount, row.what) for row in some]
        data = table(("what", Column("cost", currency), "for"), cells)
        views.append(View(currency, data, {"category": "what", "values": ["cost"], "most": 40}))
    known = sorted((row for row in rows if math.isfinite(row.amount)), key=lambda row: row.amount) or rows
    ends = [f"{_money(row.amount, row.currency)} for {row.name}" for row in (known[0], known[-1])]
    says = f"Costs range from {ends[0]} to {ends[1]}."
    if len(rows) == 1:
        says = f"{rows[0].name} costs {_money(rows[0].amount, rows[0].currency)}."
    note = "" if price is None else (
        f"At {number(price)} per machine and hour: a run is charged for its wall-clock time, a simulated run for its "
        "simulated time on each of its workers."
    )  # fmt: skip
    drawn = Figure("costs", "Cost", "bars", tuple(views), says, note, choice="currency", wide=True)
    return section("costs", "Cost", (says,), blocks=(drawn,))


def _money(amount: float, currency: str) -> str:
    """US$ 2.50; US$ 1,272.17 per year."""
    symbol, _, span = currency.partition(" ")
    said = f"{amount:,.2f}" if math.isfinite(amount) and amount >= 0.01 else number(amount)
    return f"{symbol} {said} {span}".rstrip()
