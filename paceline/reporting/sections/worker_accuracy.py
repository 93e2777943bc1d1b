"""Training accuracy epoch by epoch, with a line for each worker of a synchronous run: they see different batches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields

from paceline.reporting.figure import Cell, Column, Figure, View, table
from paceline.results.labels import REPETITION, differing, telling_keys
from paceline.results.run_result import RunResult, group_name
from paceline.workload import Workload

MOST_WORKERS = 8
MOST_LINES = 12
"""Of a view; runs with more workers are left out first."""
OF_A_WAY = ("strategy", "workers", "groups", "driver", "device")
OF_A_WORKLOAD = tuple(f.name for f in fields(Workload) if f.name not in (REPETITION, "device", "threads"))


def worker_accuracy(runs: Sequence[RunResult]) -> Figure | None:
    """A view for each workload, if some were trained by synchronous workers; of repetitions, the first."""
    told = [run for run in runs if _lines(run)]
    if not any(run.workers > 1 for run in told):
        return None
    unequal = differing([run.settings for run in told])
    keys = telling_keys([run.settings for run in told], tuple(key for key in unequal if key not in OF_A_WORKLOAD))
    ways = telling_keys([run.settings for run in told], tuple(key for key in unequal if key not in OF_A_WAY))
    members: dict[str, dict[str, RunResult]] = {}
    for run in told:
        members.setdefault(group_name(run, keys) if keys else "", {}).setdefault(group_name(run, ways), run)
    rows: dict[str, list[tuple[Cell, ...]]] = {}
    for view, by_way in members.items():
        drawn = 0
        for way, run in sorted(by_way.items(), key=lambda entry: entry[1].workers):
            if drawn and drawn + run.workers > MOST_LINES:
                continue
            drawn += run.workers
            for worker, accuracies in _lines(run):
                name = f"{way}, {worker}" if worker else way
                shown = [(e, 100 * a) for e, a in enumerate(accuracies, 1) if math.isfinite(a)]
                rows.setdefault(view, []).extend((name, epoch, accuracy) for epoch, accuracy in shown)
    columns = ("line", Column("epoch"), Column("training accuracy", "%"))
    options = {"line": "line", "group": "line", "x": "epoch", "y": "training accuracy"}
    views = tuple(View(name, table(columns, found), options) for name, found in rows.items())
    note = "Averages over the steps of an epoch, on the batches that each worker had; the first of the repetitions."
    return Figure("worker-accuracy", "Training accuracy by worker", "lines", views, "", note, choice="of", wide=True)


def _lines(run: RunResult) -> list[tuple[str, Sequence[float]]]:
    """Names and accuracies: of one process, or of each worker."""
    d = run.distribution
    if run.run is None or run.workers > MOST_WORKERS or (d is not None and not d.strategy.is_synchronous):
        return []
    if d is None:
        found: list[tuple[str, Sequence[float]]] = [("", [epoch.train_accuracy for epoch in run.run.epochs])]
    else:
        found = [(f"worker {w.worker}" if run.workers > 1 else "", w.accuracies) for w in d.by_worker]
    return [(name, values) for name, values in found if any(math.isfinite(value) for value in values)]
