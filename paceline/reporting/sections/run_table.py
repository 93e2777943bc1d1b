"""All runs: the settings in which they differ, and their results."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.formatting import as_number, count
from paceline.reporting.figure import Cell, Column, Section, TableBlock, filled, table
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
    columns: tuple[str | Column, ...] = (
        "run", "status", "workers", Column("test accuracy", "%"), "test loss",
        Column(f"time to {100 * target:.0f} %", "s"), Column("time", "s"), Column("throughput", "samples/s"), "updates",
        "mean staleness", Column("waiting", "%"), Column("wall-clock time", "s"),
        *(key.replace("_", " ") for key in keys), "place",
    )  # fmt: skip
    rows: list[tuple[Cell, ...]] = [
        (
            run.label, _status(run), run.workers, 100 * run.accuracy, run.loss, seconds_to_accuracy(run, target),
            run.seconds, run.samples_per_s, run.updates, _staleness(run),
            100 * run.distribution.waiting_share if run.distribution else None, run.wall_s,
            *(as_number(run.settings.get(key, "")) for key in keys), run.place,
        )
        for run in runs
    ]  # fmt: skip
    data = filled(table(columns, rows))
    note = "For simulated runs, time and throughput are simulated; wall-clock time is what the simulation took."
    listing = TableBlock("runs-table", count(len(runs), "run"), data, note, folded=len(runs) > MANY, of_runs=True)
    return Section("runs", "All runs", blocks=(listing,))


def _status(run: RunResult) -> str:
    return "finished, did not learn" if run.status == "finished" and not run.ranked else run.status


def _staleness(run: RunResult) -> float | None:
    if run.distribution is None or not run.distribution.ledger.staleness:
        return None
    return run.distribution.ledger.mean_staleness
