"""Accuracy and loss over time, updates and epochs; training accuracy of each worker of a synchronous run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields

from paceline.formatting import median_of, percent
from paceline.reporting.colours import group_styles
from paceline.reporting.figure import Column, Figure, Section, Table, TableBlock, View, figure, filled, section, table
from paceline.results.labels import REPETITION, differing, grouped, telling_keys
from paceline.results.run_result import CurvePoint, RunResult, group_name, groups_of
from paceline.training.run import Epoch, Run
from paceline.workload import Workload

SECONDS, UPDATES, EPOCH = Column("time", "s"), Column("updates"), Column("epoch")
MANY_LINES = 12
CLOCKS = {False: "measured time", True: "simulated time"}  # by whether it is simulated
MOST_WORKERS = 8
MOST_LINES = 12  # per view; runs with more workers are left out first
OF_A_WAY = ("strategy", "workers", "groups", "driver", "device")
OF_A_WORKLOAD = tuple(f.name for f in fields(Workload) if f.name not in (REPETITION, "device", "threads"))


def learning(runs: Sequence[RunResult]) -> Section | None:
    curves = [run for run in runs if run.curve]
    if not curves or (len(curves) > 1 and all(len(run.curve) == 1 for run in curves)):  # single points are not curves
        return None
    figures = [*(_of_one(curves[0]) if len(curves) == 1 else _of_several(curves))]
    labelled = any(run.labelled for run in curves)
    taken = "Training accuracy and loss are averages" if labelled else "The training loss is an average"
    taken += " over the steps of an epoch, with dropout active and parameters changing; "
    taken += f"{'test accuracy and loss are' if labelled else 'the test loss is'} from the validation after it."
    alone = curves[0].run if len(curves) == 1 else None
    blocks = (*figures, worker_accuracy(curves), _epochs(alone) if alone is not None else None)
    title = "Accuracy and loss" if labelled else "Loss"
    return section("learning", title, (_sentence(curves), taken), blocks=blocks) if any(figures) else None


def _epochs(run: Run) -> TableBlock:
    top, shown = f"top-{run.shown_top}", bool(run.shown_top)
    columns: dict[str | Column, Callable[[Epoch], float]] = {
        "epoch": lambda e: e.epoch,
        Column("loss"): lambda e: e.loss,
        Column("training top-1", "%"): lambda e: 100 * e.train_accuracy,
        **({Column(f"training {top}", "%"): lambda e: 100 * e.train_top_accuracy} if shown else {}),
        Column("test loss"): lambda e: e.test_loss,
        Column("test top-1", "%"): lambda e: 100 * e.test_accuracy,
        **({Column(f"test {top}", "%"): lambda e: 100 * e.test_top_accuracy} if shown else {}),
        **({Column(f"test {run.metric}"): lambda e: e.test_metric} if run.metric else {}),
        **({} if run.is_simulated else {Column("samples/s"): lambda e: e.samples_per_s}),
        Column("wall-clock time" if run.is_simulated else "time", "s"): lambda e: e.wall_s,
    }
    data = table(list(columns), [[value(epoch) for value in columns.values()] for epoch in run.epochs])
    return TableBlock("epochs", "Epochs", filled(data) if run.metric else data)


def _sentence(runs: Sequence[RunResult]) -> str:
    known = [run for run in runs if run.labelled]
    if not known:
        if len(runs) == 1 and math.isfinite(runs[0].metric_value):
            return f"The final test {runs[0].metric_name} is {runs[0].metric_value:.4g}."
        if len(runs) == 1:
            return f"The final test loss is {runs[0].loss:.4f}."
        losses = [run.loss for run in runs if math.isfinite(run.loss)]
        return f"Final test losses range from {min(losses):.4f} to {max(losses):.4f}." if losses else ""
    if len(known) == 1:
        run = known[0]
        best = max(run.curve, key=lambda p: -1.0 if math.isnan(p.test_accuracy) else p.test_accuracy)
        when = "the last epoch" if best is run.curve[-1] else f"epoch {best.epoch:g} of {len(run.curve)}"
        return f"The best test accuracy, {percent(best.test_accuracy)}, was reached in {when}."
    low, high = (percent(end([run.accuracy for run in known])) for end in (min, max))
    if low == high:
        return f"All {len(known)} runs end at {low} test accuracy."
    return f"Final test accuracies of {len(known)} runs range from {low} to {high}."


def _of_one(run: RunResult) -> Iterator[Figure | None]:
    metric = run.metric_name
    whens = [(p.seconds, p.updates, p.epoch) for p in run.curve]
    training = [(100 * p.train_accuracy, math.nan, p.train_loss) for p in run.curve]
    tested = [(100 * p.test_accuracy, p.test_metric, p.test_loss) for p in run.curve]
    columns = ("series", SECONDS, UPDATES, EPOCH, Column("accuracy", "%"), Column(metric), Column("loss"))
    rows = [("training", *when, *score) for when, score in zip(whens, training, strict=True)]
    rows += [("test", *when, *score) for when, score in zip(whens, tested, strict=True)]
    data = table(columns, rows)
    clock = "simulated time" if run.virtual else "time"
    for id, what in (("accuracy", "accuracy"), ("metric", metric), ("loss", "loss")):
        views = (
            View(name, data, {"line": "series", "x": x.name, "y": what})
            for name, x in (("epochs", EPOCH), (clock, SECONDS), ("updates", UPDATES))
            if _drawable(data, x.name, what)
        )
        yield figure(id, what[:1].upper() + what[1:], "lines", views, choice="over")


def _drawable(data: Table, x: str, y: str) -> bool:
    return any(a is not None and b is not None for a, b in zip(data.values(x), data.values(y), strict=True))


def _of_several(runs: Sequence[RunResult]) -> Iterator[Figure | None]:
    by_clock = grouped(sorted(runs, key=lambda run: run.virtual), lambda run: CLOCKS[run.virtual])
    time = "time" if len(by_clock) > 1 else next(iter(by_clock))
    what = "Accuracy and loss" if any(run.labelled for run in runs) else "Loss"
    over_time = _views(by_clock if len(by_clock) > 1 else {"": runs}, "time")
    yield figure("accuracy-time", f"{what} over {time}", "lines", over_time)
    yield figure("accuracy-updates", f"{what} over updates", "lines", _views({"": runs}, "updates"))


def _views(runs: Mapping[str, Sequence[RunResult]], x: str) -> list[View]:
    """A view per metric; with many repetitions, medians come first."""
    found = []
    several = sum(map(len, runs.values())) > MANY_LINES and any(len(groups_of(r)) < len(r) for r in runs.values())
    tables = [(kind, "median of repetitions", some, _medians(some)) for kind, some in runs.items() if several]
    for kind, some in runs.items():
        every = _curve_table([(run.label, run.group, run.curve) for run in some])
        tables.append((kind, "all runs" if several else "", some, every))
    for y in ("test accuracy", "test metric", "test loss", "training loss"):
        for kind, which, some, data in tables:
            if _drawable(data, x, y):
                options = {"line": "run", "group": "group", "x": x, "y": y, **group_styles(some)}
                found.append(View(", ".join(word for word in (y, which, kind) if word), data, options))
    return found


def _medians(runs: Sequence[RunResult]) -> Table:
    """Medians of the repetitions, epoch by epoch."""
    named = []
    for group, members in groups_of(runs).items():
        by_epoch = grouped((point for run in members for point in run.curve), lambda point: point.epoch)
        points = tuple(
            CurvePoint(epoch, *(median_of(getattr(p, f.name) for p in points) for f in fields(CurvePoint)[1:]))
            for epoch, points in sorted(by_epoch.items())
        )
        named.append((group, group, points))
    return _curve_table(named)


def _curve_table(curves: Sequence[tuple[str, str, Sequence[CurvePoint]]]) -> Table:
    columns = (
        "run", "group", EPOCH, SECONDS, UPDATES, Column("training loss"), Column("test loss"),
        Column("training accuracy", "%"), Column("test accuracy", "%"), Column("test metric"),
    )  # fmt: skip
    return table(
        columns,
        [
            (
                label, group, p.epoch, p.seconds, p.updates, p.train_loss, p.test_loss,
                100 * p.train_accuracy, 100 * p.test_accuracy, p.test_metric,
            )
            for label, group, curve in curves
            for p in curve
        ],
    )  # fmt: skip


def worker_accuracy(runs: Sequence[RunResult]) -> Figure | None:
    """A view per workload, if any was trained by synchronous workers; only the first repetition."""
    told = [run for run in runs if _worker_lines(run)]
    unequal = differing([run.settings for run in told])
    keys = telling_keys([run.settings for run in told], tuple(key for key in unequal if key not in OF_A_WORKLOAD))
    ways = telling_keys([run.settings for run in told], tuple(key for key in unequal if key not in OF_A_WAY))
    rows: dict[str, list[tuple[str, int, float]]] = {}
    for view, members in grouped(told, lambda run: group_name(run, keys) if keys else "").items():
        by_way = {way: some[0] for way, some in grouped(members, lambda run: group_name(run, ways)).items()}
        if all(run.workers == 1 for run in by_way.values()):
            continue
        drawn, rows[view] = 0, []
        for way, run in sorted(by_way.items(), key=lambda entry: entry[1].workers):
            if drawn and drawn + run.workers > MOST_LINES:
                continue
            drawn += run.workers
            for worker, accuracies in _worker_lines(run):
                name = f"{way}, {worker}" if worker else way
                rows[view] += [(name, e, 100 * a) for e, a in enumerate(accuracies, 1) if math.isfinite(a)]
    columns = ("line", Column("epoch"), Column("training accuracy", "%"))
    options = {"line": "line", "x": "epoch", "y": "training accuracy"}
    views = (View(name, table(columns, found), options) for name, found in rows.items())
    note = "Averages over the steps of an epoch, on the batches that each worker had; the first of the repetitions."
    return figure("worker-accuracy", "Training accuracy by worker", "lines", views, note=note, choice="of", wide=True)


def _worker_lines(run: RunResult) -> list[tuple[str, Sequence[float]]]:
    """Names and accuracies of each worker, or of one process."""
    d = run.distribution
    if run.run is None or run.workers > MOST_WORKERS or (d is not None and not d.strategy.is_synchronous):
        return []
    if d is None:
        found: list[tuple[str, Sequence[float]]] = [("", [epoch.train_accuracy for epoch in run.run.epochs])]
    else:
        found = [(f"worker {w.worker}" if run.workers > 1 else "", w.accuracies) for w in d.by_worker]
    return [(name, values) for name, values in found if any(math.isfinite(value) for value in values)]
