"""Accuracy and loss over time, updates and epochs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields

from paceline.formatting import UNKNOWN, count, largest, median_of, percent
from paceline.reporting.colours import group_styles
from paceline.reporting.figure import Column, Figure, Section, Table, TableBlock, View, table
from paceline.reporting.sections.worker_accuracy import worker_accuracy
from paceline.results.run_result import CurvePoint, RunResult, groups_of
from paceline.training.run import Run

SECONDS, UPDATES, EPOCH = Column("time", "s"), Column("updates"), Column("epoch")
MANY_LINES = 12
ACCURACY, LOSS = Column("accuracy", "%"), Column("loss")


def learning(runs: Sequence[RunResult]) -> Section | None:
    curves = [run for run in runs if run.curve]
    if not curves:
        return None
    figures = _of_one(curves[0]) if len(curves) == 1 else _of_several(curves)
    taken = "Training accuracy and loss are averages over the steps of an epoch, with dropout active and parameters "
    taken += "changing; test accuracy and loss are from the validation after it."
    blocks: list[Figure | TableBlock] = [*figures]
    if (every_worker := worker_accuracy(curves)) is not None:
        blocks.append(every_worker)
    if len(curves) == 1 and curves[0].run is not None:
        blocks.append(_epochs(curves[0].run))
    return (
        Section("learning", "Accuracy and loss", (_sentence(curves), taken), blocks=tuple(blocks)) if figures else None
    )


def _epochs(run: Run) -> TableBlock:
    top = f"top-{run.workload.top}"
    columns = (
        "epoch", Column("loss"), Column("training top-1", "%"), Column(f"training {top}", "%"), Column("test loss"),
        Column("test top-1", "%"), Column(f"test {top}", "%"), Column("samples/s"), Column("time", "s"),
    )  # fmt: skip
    rows = [
        (
            e.epoch, e.loss, 100 * e.train_accuracy, 100 * e.train_top_accuracy, e.test_loss, 100 * e.test_accuracy,
            100 * e.test_top_accuracy, e.samples_per_s, e.wall_s,
        )
        for e in run.epochs
    ]  # fmt: skip
    return TableBlock("epochs", "Epochs", table(columns, rows), folded=len(rows) > 12)


def _sentence(runs: Sequence[RunResult]) -> str:
    known = [run for run in runs if run.labelled]
    if not known:
        if len(runs) == 1:
            return f"The final test loss is {runs[0].loss:.4f}."
        return f"Final test losses range from {_low_high([run.loss for run in runs], lambda v: f'{v:.4f}')}."
    if len(known) == 1:
        run = known[0]
        best = max(run.curve, key=lambda p: -1.0 if math.isnan(p.test_accuracy) else p.test_accuracy)
        when = "the last epoch" if best is run.curve[-1] else f"epoch {best.epoch:g} of {len(run.curve)}"
        return f"The best test accuracy, {percent(best.test_accuracy)}, was reached in {when}."
    spread = _low_high([run.accuracy for run in known], percent)
    return f"Final test accuracies of {count(len(known), 'run')} range from {spread}."


def _low_high(values: list[float], say: Callable[[float], str]) -> str:
    finite = [v for v in values if math.isfinite(v)]
    return f"{say(min(finite))} to {say(max(finite))}" if finite else UNKNOWN


def _of_one(run: RunResult) -> list[Figure]:
    def rows(name: str, of: Callable[[CurvePoint], tuple[float, float]]) -> list[tuple[str, float, float, int, float]]:
        found = [(name, p.seconds, p.updates, p.epoch, *of(p)) for p in run.curve]
        return [(*head, 100 * accuracy, loss) for *head, accuracy, loss in found]  # type: ignore[misc]

    data = table(
        ("series", SECONDS, UPDATES, EPOCH, ACCURACY, LOSS),
        [
            *rows("training", lambda p: (p.train_accuracy, p.train_loss)),
            *rows("test", lambda p: (p.test_accuracy, p.test_loss)),
        ],
    )
    clock = "simulated time" if run.virtual else "time"
    figures = []
    for what, title in (("accuracy", "Accuracy"), ("loss", "Loss")):
        views = [
            View(name, data, {"line": "series", "x": x.name, "y": what})
            for name, x in (("epochs", EPOCH), (clock, SECONDS), ("updates", UPDATES))
            if _drawable(data, x.name, what)
        ]
        if views:
            figures.append(Figure(what, title, "lines", tuple(views), choice="over"))
    return figures


def _drawable(data: Table, x: str, y: str) -> bool:
    return any(a is not None and b is not None for a, b in zip(data.values(x), data.values(y), strict=True))


def _of_several(runs: Sequence[RunResult]) -> list[Figure]:
    clocks = {False: "measured time", True: "simulated time"}
    there = [virtual for virtual in clocks if any(run.virtual == virtual for run in runs)]
    by_clock = {clocks[v]: [run for run in runs if run.virtual == v] for v in there}
    over_time = _views(by_clock if len(there) > 1 else {"": runs}, "time")
    over_updates = _views({"": runs}, "updates")
    time = f"over {clocks[there[0]]}" if len(there) == 1 else "over time"
    best = largest([run.accuracy for run in runs])
    made = (("accuracy-time", time, over_time), ("accuracy-updates", "over updates", over_updates))
    return [
        Figure(name, f"{'Accuracy and loss' if math.isfinite(best) else 'Loss'} {over}", "lines", tuple(views))
        for name, over, views in made
        if views
    ]


def _views(runs: Mapping[str, Sequence[RunResult]], x: str) -> list[View]:
    """Every metric; where many lines would be repetitions, their medians come first."""
    found = []
    several = sum(map(len, runs.values())) > MANY_LINES and any(len(groups_of(r)) < len(r) for r in runs.values())
    tables = [(kind, "median of repetitions", some, _medians(some)) for kind, some in runs.items() if several]
    tables += [(kind, "all runs" if several else "", some, _table(some)) for kind, some in runs.items()]
    for y in ("test accuracy", "test loss", "training loss"):
        for kind, which, some, data in tables:
            if _drawable(data, x, y):
                options = {"line": "run", "group": "group", "x": x, "y": y, **group_styles(some)}
                found.append(View(", ".join(word for word in (y, which, kind) if word), data, options))
    return found


def _medians(runs: Sequence[RunResult]) -> Table:
    """Of all repetitions, epoch by epoch."""
    named = []
    for group, members in groups_of(runs).items():
        by_epoch: dict[float, list[CurvePoint]] = {}
        for run in members:
            for point in run.curve:
                by_epoch.setdefault(point.epoch, []).append(point)
        points = tuple(
            CurvePoint(epoch, *(median_of(getattr(p, f.name) for p in points) for f in fields(CurvePoint)[1:]))
            for epoch, points in sorted(by_epoch.items())
        )
        named.append((group, group, points))
    return _curve_table(named)


def _table(runs: Sequence[RunResult]) -> Table:
    return _curve_table([(run.label, run.group, run.curve) for run in runs])


def _curve_table(curves: Sequence[tuple[str, str, Sequence[CurvePoint]]]) -> Table:
    columns = (
        "run", "group", EPOCH, SECONDS, UPDATES, Column("training loss"), Column("test loss"),
        Column("training accuracy", "%"), Column("test accuracy", "%"),
    )  # fmt: skip
    return table(
        columns,
        [
            (
                label, group, p.epoch, p.seconds, p.updates, p.train_loss, p.test_loss,
                100 * p.train_accuracy, 100 * p.test_accuracy,
            )
            for label, group, curve in curves
            for p in curve
        ],
    )  # fmt: skip
