"""An experiment on the terminal: a bar with the remaining time, a line per run, and its tables."""

from __future__ import annotations

import math
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.table import Table

from paceline.cli.console import BarAfterDownloads, rows_table, use_all_columns
from paceline.cli.progress import elapsed
from paceline.errors import PacelineError
from paceline.experiment.watcher import ExperimentWatcher, Standing
from paceline.formatting import count
from paceline.results.outcome import PlannedRun
from paceline.results.run_row import Row
from paceline.results.table import ResultsTable

MOST_LETTERS = 60
"""Of what is running: the bar should stay on one line."""
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


class ExperimentProgress(BarAfterDownloads, ExperimentWatcher):
    """A watcher of experiments. Without a terminal it prints one line per run and draws no bar."""

    def __init__(self, console: Console) -> None:
        super().__init__(
            console,
            MofNCompleteColumn(),
            TextColumn("runs"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[left]}  {task.fields[running]}", markup=False),
        )
        self.task = self.bar.add_task("", total=None, left="", running="")
        self.directory = Path()
        self.done, self.planned = 0, 0

    def begun(self, standing: Standing, notes: list[str]) -> None:
        self.directory, self.done, self.planned = standing.directory, standing.done, standing.planned
        done = f", {standing.done} of them done already" if standing.done else ""
        self.console.print(f"{count(standing.planned, 'run')}{done}, in {standing.directory}")
        for note in notes:
            self.console.print(note)
        self.start_bar()
        self.advanced(standing)

    def advanced(self, standing: Standing) -> None:
        left = "" if standing.left_s is None else f"{elapsed(standing.left_s)} left"
        left += f", {standing.failed} failed" if standing.failed else ""
        running = "; ".join(_name(run) for run in standing.running)
        running = running if len(running) <= MOST_LETTERS else f"{running[: MOST_LETTERS - 1]}…"
        self.bar.update(self.task, total=standing.planned, completed=standing.done, left=left, running=running)

    def finished(self, run: PlannedRun, row: Row) -> None:
        self.done += 1
        width = len(str(self.planned))
        self.console.print(f"{self.done:>{width}}/{self.planned}  {_name(run)}  {_result(row)}")


def _name(run: PlannedRun) -> str:
    return f"{run.label or run.workload.network} #{run.repetition}"


def _result(row: Row) -> str:
    """What a run came to, in a few words."""
    if row["status"] != "finished":
        return f"{row['status']}: {row['error']}"
    said = []
    if _is_known(row.get("test_accuracy")):
        said.append(f"accuracy {100 * row['test_accuracy']:.2f} %")
    elif _is_known(row.get("test_loss")):
        said.append(f"test loss {row['test_loss']:.4f}")
    if _is_known(row.get("iteration_s")) and row["kind"] in ("measure", "feed"):
        said.append(f"iteration {1e3 * row['iteration_s']:.3f} ms")
    if _is_known(row.get("virtual_s")):
        said.append(f"virtual time {row['virtual_s']:,.6g} s")
    return "  ".join([*said, f"{row['process_s']:.1f} s"])


def show_tables(found: ResultsTable, console: Console) -> None:
    """The summary, and published numbers below it if there are any."""
    use_all_columns(console)
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
    """Whether it has a value but 0."""
    return any(_is_known(row.get(column)) and row[column] for row in found.summary)


def _is_known(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


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
        {"run": run.id, "kind": run.kind, "setting": run.label, "repetition": run.repetition, "seed": run.workload.seed}
        for run in runs
    )
