"""Every run in a row: what makes it different, and what came of it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from paceline.formatting import as_number, count
from paceline.reporting.figure import Cell, Column, Section, TableBlock, table
from paceline.reporting.reaching import seconds_to, target_accuracy
from paceline.results.labels import differing
from paceline.results.run_result import RunResult

NOT_A_COLUMN = ("workers", "Paceline")
MOST_SETTINGS = 6


def run_table(runs: Sequence[RunResult]) -> Section | None:
    if len(runs) < 2:  # everything about a single one is said above
        return None
    keys = [key for key in differing([run.settings for run in runs]) if key not in NOT_A_COLUMN][:MOST_SETTINGS]
    target = target_accuracy(runs)
    columns: list[tuple[Column, list[Cell]]] = [
        (Column("run"), [run.label for run in runs]),
        (Column("workers"), [run.workers for run in runs]),
        (Column("test accuracy", "%"), [100 * run.accuracy for run in runs]),
        (Column("test loss"), [run.loss for run in runs]),
        (Column(f"time to {100 * target:.0f} %", "s"), [seconds_to(run, target) for run in runs]),
        (Column("time", "s"), [run.seconds for run in runs]),
        (Column("samples a second"), [run.samples_per_s for run in runs]),
        (Column("updates"), [run.updates for run in runs]),
        (Column("mean staleness"), [_staleness(run) for run in runs]),
        (Column("waiting", "%"), [100 * run.distribution.waiting_share if run.distribution else None for run in runs]),
        (Column("wall clock", "s"), [run.wall_s for run in runs]),
        (Column("status"), [run.status for run in runs]),
        *((Column(key.replace("_", " ")), [as_number(run.settings.get(key, "")) for run in runs]) for key in keys),
        (Column("place"), [run.place for run in runs]),
    ]
    told = [(column, cells) for column, cells in columns if any(_is_told(cell) for cell in cells)]
    data = table([column for column, _ in told], list(zip(*(cells for _, cells in told), strict=True)))
    note = "Time and samples a second are on the driver's own clock: simulated seconds for simulated runs."
    listing = TableBlock("runs-table", count(len(runs), "run"), data, note, of_runs=True)
    return Section("runs", "Every run", blocks=(listing,))


def _is_told(cell: Cell) -> bool:
    return cell not in (None, "") and not (isinstance(cell, float) and math.isnan(cell))


def _staleness(run: RunResult) -> float | None:
    if run.distribution is None or not run.distribution.ledger.staleness:
        return None
    return run.distribution.ledger.mean_staleness
