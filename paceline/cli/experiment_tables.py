"""The tables of an experiment on the terminal."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from paceline.cli.tables import rows_table
from paceline.errors import PacelineError
from paceline.experiment.planning import PlannedRun
from paceline.results.run_row import Row
from paceline.results.table import ResultsTable

# Heading, column, factor; the first that are known are shown.
SHOWN = (
    ("accuracy %", "test_accuracy", 100.0),
    ("iteration ms", "iteration_s", 1e3),
    ("forward ms", "forward_s", 1e3),
    ("backward ms", "backward_s", 1e3),
    ("virtual s", "virtual_s", 1.0),
    ("train s", "train_s", 1.0),
    ("updates/s", "updates_per_s", 1.0),
    ("staleness", "mean_staleness", 1.0),
    ("waiting %", "waiting_share", 100.0),
    ("samples/s", "samples_per_s", 1.0),
    ("test loss", "test_loss", 1.0),
)
DIGITS = 4
MOST_COLUMNS = 6
MOST_ROWS = 60


def show_tables(found: ResultsTable, console: Console) -> None:
    """The summary, and published numbers below it if there are any."""
    if not console.is_terminal:
        console.width = 240  # a file has room for all columns
    console.print(summary_table(found))
    if found.published:
        console.print()
        console.print(published_table(found))


def raise_if_failed(found: ResultsTable, place: Path, verb: str) -> None:
    """What was made is shown and kept; that some runs failed is then the error of the command."""
    failed = [row for row in found.rows if row["status"] == "failed"]
    if failed:
        raise PacelineError(
            f"{len(failed)} of {len(found.rows)} runs failed, the first with: {failed[0]['error']}; "
            f"what went wrong is in {place / failed[0]['directory']}; once it is fixed: "
            f"paceline {verb} --resume {place} --retry"
        )


def summary_table(found: ResultsTable) -> Table:
    """A row per setting: what distinguishes it, and mean ± standard deviation of its repetitions."""
    varied = {name: name.replace("_", "-") for name in found.varied}
    counts = [name for name in ("n", "diverged", "failed", "unfinished") if name == "n" or _any(found, name)]
    shown = [column for column in SHOWN if _any(found, f"{column[1]}_mean")][:MOST_COLUMNS]
    rows = [
        {
            **{heading: "" if row.get(name) is None else str(row[name]) for name, heading in varied.items()},
            **{name: row[name] for name in counts},
            **{heading: _mean(row, column, factor) for heading, column, factor in shown},
        }
        for row in found.summary[:MOST_ROWS]
    ]
    table = rows_table(rows, left=varied.values())
    if len(found.summary) > MOST_ROWS:
        table.add_row(f"… and {len(found.summary) - MOST_ROWS} more in summary.csv")
    return table


def _any(found: ResultsTable, column: str) -> bool:
    return any(_number(row.get(column)) for row in found.summary)


def _number(value: Any) -> float:
    """0 for what is none."""
    return value if isinstance(value, int | float) and math.isfinite(value) else 0.0


def _mean(row: Row, column: str, factor: float) -> str:
    mean, deviation = (factor * row.get(f"{column}_{name}", math.nan) for name in ("mean", "std"))
    if not math.isfinite(mean):
        return "–"
    places = 2 if not mean else min(6, max(0, DIGITS - 1 - math.floor(math.log10(abs(mean)))))
    return f"{mean:,.{places}f}" + (f" ± {deviation:,.{places}f}" if math.isfinite(deviation) else "")


def published_table(found: ResultsTable) -> Table:
    """Published numbers, and ours beside those that can be compared."""
    rows = []
    for number in found.published:
        ours = found.of(number)
        here = " to ".join(f"{value:.6g}" for value in dict.fromkeys((min(ours), max(ours)))) if ours else ""
        value = f"{number.value:.6g} {number.unit}".strip()
        rows.append({"published": number.label, "value": value, "here": here, "source": number.source})
    return rows_table(rows, left=("published", "source"), wrap=True)


def plan_table(runs: list[PlannedRun]) -> Table:
    return rows_table(
        {"run": run.id, "kind": run.kind, "setting": run.label, "repetition": run.repetition, "seed": run.seed}
        for run in runs
    )
