"""The tables of an experiment on the terminal."""

from __future__ import annotations

import math
from typing import Any

from rich.table import Table

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


def summary_table(found: ResultsTable) -> Table:
    """A row a setting: what distinguishes it, and mean ± standard deviation of its repetitions."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in found.varied:
        table.add_column(name.replace("_", "-"), no_wrap=True)
    counts = [name for name in ("n", "diverged", "failed", "unfinished") if name == "n" or _any(found, name)]
    shown = [column for column in SHOWN if _any(found, f"{column[1]}_mean")][:MOST_COLUMNS]
    for name in (*counts, *(heading for heading, _, _ in shown)):
        table.add_column(name, justify="right", no_wrap=True, min_width=len(name))
    for row in found.summary[:MOST_ROWS]:
        table.add_row(
            *("" if row.get(name) is None else str(row[name]) for name in found.varied),
            *(str(row[name]) for name in counts),
            *(_mean(row, column, factor) for _, column, factor in shown),
        )
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
    """What others found, and what was found here where it can be compared."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("published", "value", "here", "source"):
        table.add_column(name, justify="right" if name in ("value", "here") else "left")
    for number in found.published:
        ours = found.of(number)
        here = " to ".join(f"{value:.6g}" for value in dict.fromkeys((min(ours), max(ours)))) if ours else ""
        table.add_row(number.label, f"{number.value:.6g} {number.unit}".strip(), here, number.source)
    return table


def plan_table(runs: list[PlannedRun]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("run", "kind", "setting", "repetition", "seed"):
        table.add_column(name, no_wrap=True)
    for run in runs:
        table.add_row(run.id, run.kind, run.label, str(run.repetition), str(run.seed))
    return table
