"""An experiment on the terminal: a bar with the remaining time, a line per run, and its tables."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.table import Table

from paceline.cli.console import BarAfterDownloads, rows_table, use_all_columns
from paceline.errors import PacelineError
from paceline.experiment.watcher import ExperimentWatcher, Standing
from paceline.formatting import count, duration
from paceline.results.outcome import PlannedRun
from paceline.results.run_row import Row
from paceline.results.table import ResultsTable, is_number, setting_heading

MOST_LETTERS = 60  # of the names of running runs, so that the bar stays on one line
MOST_ROWS = 60
FIGURES = (  # column, factor and words
    ("test_accuracy", 100, "accuracy {:.2f} %"), ("test_loss", 1, "test loss {:.4f}"),
    ("test_metric", 1, "metric {:.4g}"), ("iteration_s", 1e3, "iteration {:.3f} ms"),
    ("virtual_s", 1, "virtual time {:,.6g} s"), ("process_s", 1, "{:.1f} s"),
)  # fmt: skip


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
        self.done, self.planned = 0, 0

    def begun(self, standing: Standing, notes: list[str]) -> None:
        self.done, self.planned = standing.done, standing.planned
        done = f", {standing.done} of them done already" if standing.done else ""
        self.console.print(f"{count(standing.planned, 'run')}{done}, in {standing.directory}")
        for note in notes:
            self.console.print(note)
        self.start_bar()
        self.advanced(standing)

    def advanced(self, standing: Standing) -> None:
        left = "" if standing.left_s is None else f"{duration(round(standing.left_s))} left"
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
    if row["status"] != "finished":
        return f"{row['status']}: {row['error']}"
    known = {key for key, value in row.items() if is_number(value)}
    known -= {"test_loss"} if "test_accuracy" in known else set()
    known -= set() if row["kind"] in ("measure", "feed") else {"iteration_s"}
    return "  ".join(words.format(factor * row[key]) for key, factor, words in FIGURES if key in known)


def show_tables(found: ResultsTable, console: Console) -> None:
    use_all_columns(console)
    table = rows_table(found.table()[:MOST_ROWS], left=[setting_heading(name) for name in found.varied])
    if len(found.summary) > MOST_ROWS:
        table.add_row(f"… and {len(found.summary) - MOST_ROWS} more in summary.csv")
    console.print(table)
    if found.published:
        console.print()
        console.print(published_table(found))


def raise_if_failed(found: ResultsTable, place: Path, verb: str) -> None:
    """Failed runs are an error of the command, raised after the results have been shown and saved."""
    failed = [row for row in found.rows if row["status"] == "failed"]
    if failed:
        raise PacelineError(
            f"{len(failed)} of {len(found.rows)} runs failed, the first with: {failed[0]['error']}; "
            f"see {place / failed[0]['directory']}; once it is fixed: "
            f"paceline {verb} --resume {place} --retry"
        )


def published_table(found: ResultsTable) -> Table:
    """Published numbers, and ours beside those that can be compared."""
    rows = []
    for number in found.published:
        ours = found.of(number)
        here = " to ".join(f"{value:.6g}" for value in dict.fromkeys((min(ours), max(ours)))) if ours else ""
        value = f"{number.value:.6g} {number.unit}".strip()
        rows.append({"published": number.label, "value": value, "here": here, "source": number.source})
    return rows_table(rows, left=("published", "source"), wrap=True)
