"""Draws a run on the terminal: a bar while it goes on, a line an epoch, a table at the end."""

from __future__ import annotations

import math
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from paceline.cli.download_bar import DownloadBar
from paceline.strategy.distribution import Distribution
from paceline.training.run import Epoch, Run
from paceline.training.watcher import Progress as Advance
from paceline.training.watcher import WorkersProgress


class TerminalWatcher:
    """A watcher of runs. Without a terminal it prints one line per epoch and draws no bar."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.bar = Progress(
            TextColumn("epoch {task.fields[epoch]}"),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f} %  loss {task.fields[loss]}  {task.fields[accuracy]}"),
            TextColumn("{task.fields[rate]} samples/s  {task.fields[left]}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self.downloads = DownloadBar(console)
        self.run: Run | None = None
        self.task = self.bar.add_task("", total=None, visible=False, epoch="", loss="", accuracy="", rate="", left="")

    def __enter__(self) -> TerminalWatcher:
        self.downloads.__enter__()  # a terminal has room for one bar at a time; training comes after fetching
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.downloads.__exit__(kind, error, traceback)
        self.bar.stop()

    def begun(self, run: Run, notes: list[str]) -> None:
        self.downloads.__exit__(None, None, None)
        self.bar.start()
        self.run = run
        w, c = run.workload, run.conditions
        for note in notes:
            self.console.print(note, markup=False)
        threads = f", {c.threads} thread{'s' * (c.threads > 1)}" if c.device == "cpu" else ""
        self.console.print(
            f"{w.network} ({run.parameters:,} parameters) on {w.data}, batch {w.batch}, {w.optimizer} at {w.lr:g}, "
            f"{c.device_name}{threads}",
            markup=False,
        )
        self.console.print(f"step: {run.step.kind} ({run.step.reason}); data: {run.data}", markup=False)
        for device, count in sorted(run.placement.items()):
            self.console.print(f"placement: {count:,} operations of a step on {device}", markup=False)
        if run.resumed:
            done = len(run.epochs)
            self.console.print(f"going on after {done} epoch{'s' * (done != 1)} and {run.updates:,} updates")

    def advanced(self, progress: Advance) -> None:
        score = progress.score
        left_steps = (progress.epochs - progress.epoch) * progress.steps - progress.step
        assert self.run is not None
        left_s = left_steps * self.run.workload.batch / max(progress.samples_per_s, 1e-9)
        self.bar.update(
            self.task,
            visible=True,
            total=progress.steps,
            completed=progress.step,
            epoch=f"{progress.epoch + 1}/{progress.epochs}",
            loss=f"{score.loss:.4f}",
            accuracy="" if progress.workers else accuracies(score.accuracy, score.top_accuracy, self.run.workload.top),
            rate=f"{progress.samples_per_s:,.0f}",
            left=_workers(progress.workers) if progress.workers else f"{elapsed(left_s)} left",
        )

    def finished_epoch(self, epoch: Epoch, run: Run) -> None:
        w = run.workload
        self.console.print(
            f"epoch {epoch.epoch}/{w.epochs}  loss {epoch.loss:.4f}  "
            f"train {accuracies(epoch.train_accuracy, epoch.train_top_accuracy, w.top)}  "
            f"test {accuracies(epoch.test_accuracy, epoch.test_top_accuracy, w.top)}  "
            f"{'' if math.isnan(epoch.test_metric) else f'metric {epoch.test_metric:.4g}  '}"
            f"{epoch.samples_per_s:,.0f} samples/s  {epoch.wall_s:.2f} s",
            markup=False,
        )


def accuracies(accuracy: float, top_accuracy: float, top: int) -> str:
    if math.isnan(accuracy):
        return "(no labels)"
    return f"top-1 {100 * accuracy:.2f} %  top-{top} {100 * top_accuracy:.2f} %"


def _workers(found: WorkersProgress) -> str:
    """In place of what is less urgent: a line has little room."""
    alive = f"{found.alive}/{found.workers} workers"
    return f"{found.updates_per_s:,.4g} updates/s  staleness {found.staleness:.1f}  {alive}"


def elapsed(seconds: float) -> str:
    seconds = max(0, round(seconds))
    if seconds >= 3600:
        return f"{seconds // 3600} h {seconds % 3600 // 60:02d} min"
    return f"{seconds // 60} min {seconds % 60:02d} s" if seconds >= 60 else f"{seconds} s"


def closing_table(run: Run) -> Table:
    """The result in a few rows."""
    table = Table(show_header=False, box=None, pad_edge=False)
    if not math.isnan(run.test_accuracy):
        table.add_row("test accuracy", f"{100 * run.test_accuracy:.2f} %")
        table.add_row(f"test top-{run.workload.top}", f"{100 * run.test_top_accuracy:.2f} %")
    table.add_row("test loss", f"{run.test_loss:.4f}")
    if not math.isnan(run.test_metric):
        table.add_row(f"test {run.workload.metric.rpartition(':')[2]}", f"{run.test_metric:.4g}")
    table.add_row("updates", f"{run.updates:,}")
    table.add_row("speed", f"{run.samples_per_s:,.0f} samples/s in training" if run.samples_per_s > 0 else "–")
    table.add_row("time", f"{run.wall_s:.1f} s, of which training {run.train_s:.1f} s")
    if run.distribution is not None:
        _add_distribution(table, run.distribution)
    return table


def _add_distribution(table: Table, found: Distribution) -> None:
    """How the workers did, below the result."""
    ledger, virtual = found.ledger, "virtual " * (found.driver == "virtual")
    table.add_row("strategy", f"{found.strategy.name}, {found.workers} {virtual}workers")
    if found.driver == "virtual":
        table.add_row("virtual time", f"{found.seconds:,.6g} s, {found.updates_per_s:,.4g} updates/s")
    else:
        table.add_row("updates", f"{found.updates_per_s:,.0f} updates/s")
    if found.driver != "virtual":
        table.add_row("commits", f"{found.commits}; groups average by {found.collective}")
    if math.isfinite(found.waiting_share):
        table.add_row("waiting", f"{found.waiting_share:.1%} of the workers' time")
    table.add_row("staleness", f"mean {ledger.mean_staleness:.2f}, 99 % up to {ledger.staleness_up_to(0.99)}")
    counts = {"applied": ledger.applied, "dropped": ledger.dropped, "refused": ledger.refused}
    counts["given out again"] = ledger.returned
    said = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count or what == "applied")
    table.add_row("batches", said)
    if found.fault_count:
        table.add_row("faults", f"{found.fault_count}, the first: {found.faults[0].what}" if found.faults else "")
