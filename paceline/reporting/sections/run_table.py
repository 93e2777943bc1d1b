"""All runs: the settings in which they differ, and their results."""

from __future__ import annotations

import math
from collections.abc import Sequence

from paceline.formatting import as_number, count
from paceline.reporting.figure import Cell, Column, Section, TableBlock, table
from paceline.reporting.time_to_target import seconds_to_accuracy, target_accuracy
from paceline.results.labels import differing
from paceline.results.run_result import RunResult

NOT_A_COLUMN = ("workers", "Paceline")
MOST_SETTINGS = 6
MANY = 20


def run_table(runs: Sequence[RunResult]) -> Section | None:
    if len(runs) < 2:  # everything about a single one is said above
        return None
    keys = [key for key in differing([run.settings for run in runs]) if key not in NOT_A_COLUMN][:MOST_SETTINGS]
    target = target_accuracy(runs)
    columns: list[tuple[Column, list[Cell]]] = [
        (Column("run"), [run.label for run in runs]),
        (Column("status"), [_status(run) for run in runs]),
        (Column("workers"), [run.workers for run in runs]),
        (Column("test accuracy", "%"), [100 * run.accuracy for run in runs]),
        (Column("test loss"), [run.loss for run in runs]),
        (Column(f"time to {100 * target:.0f} %", "s"), [seconds_to_accuracy(run, target) for run in runs]),
        (Column("time", "s"), [run.seconds for run in runs]),
        (Column("throughput", "samples/s"), [run.samples_per_s for run in runs]),
        (Column("updates"), [run.updates for run in runs]),
        (Column("mean staleness"), [_staleness(run) for run in runs]),
        (Column("waiting", "%"), [100 * run.distribution.waiting_share if run.distribution else None for run in runs]),
        (Column("wall-clock time", "s"), [run.wall_s for run in runs]),
        *((Column(key.replace("_", " ")), [as_number(run.settings.get(key, "")) for run in runs]) for key in keys),
        (Column("place"), [run.place for run in runs]),
    ]
    told = [(column, cells) for column, cells in columns if any(_is_told(cell) for cell in cells)]
    data = table([column for column, _ in told], list(zip(*(cells for _, cells in told), strict=True)))
    note = "For simulated runs, time and throughput are simulated; wall-clock time is what the simulation took."
    listing = TableBlock("runs-table", count(len(runs), "run"), data, note, folded=len(runs) > MANY, of_runs=True)
    return Section("runs", "All runs", blocks=(listing,))


def _status(run: RunResult) -> str:
    return "finished, did not learn" if run.status == "finished" and not run.ranked else run.status


def _is_told(cell: Cell) -> bool:
    return cell not in (None, "") and not (isinstance(cell, float) and math.isnan(cell))


def _staleness(run: RunResult) -> float | None:
    if run.distribution is None or not run.distribution.ledger.staleness:
        return None
    return run.distribution.ledger.mean_staleness
