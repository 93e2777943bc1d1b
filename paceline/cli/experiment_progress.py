"""Draws an experiment on the terminal: a bar with the remaining time, and a line per run."""

from __future__ import annotations

import math
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn

from paceline.cli.download_bar import BarAfterDownloads
from paceline.cli.progress import elapsed
from paceline.experiment.planning import PlannedRun
from paceline.experiment.watcher import ExperimentWatcher, Standing
from paceline.formatting import count
from paceline.results.run_row import Row

MOST_LETTERS = 60
"""Of what is running: the bar should stay on one line."""


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
        self.console.print(f"{count(standing.planned, 'run')}{done}, in {standing.directory}", markup=False)
        for note in notes:
            self.console.print(note, markup=False)
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
        self.console.print(f"{self.done:>{width}}/{self.planned}  {_name(run)}  {_result(row)}", markup=False)


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


def _is_known(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
