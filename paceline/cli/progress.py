"""Draws a run on the terminal: a bar while it runs, a line per epoch, a table at the end."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn
from rich.table import Table

from paceline.cli.console import BarAfterDownloads, facts_table
from paceline.cli.workers_table import WorkersTable
from paceline.formatting import count, duration, percent
from paceline.strategy.distribution import Distribution
from paceline.training.division import Division
from paceline.training.run import Epoch, Run
from paceline.training.watcher import Progress as Advance
from paceline.training.watcher import WorkersProgress

if TYPE_CHECKING:
    from paceline.training.measured_training import TrainingClock


class _LiveProgress(Progress):
    """A progress bar with what a clock has measured so far below it, and what each worker does."""

    def __init__(
        self, clock: TrainingClock | None, workers: WorkersTable | None, *columns: ProgressColumn, **options: Any
    ) -> None:
        self.clock, self.workers = clock, workers
        super().__init__(*columns, **options)

    def get_renderables(self) -> Iterable[RenderableType]:
        below = (self.clock.live if self.clock is not None else None, self.workers)
        return (*super().get_renderables(), *(each for each in below if each is not None))


class TerminalWatcher(BarAfterDownloads):
    """A watcher of runs. Without a terminal it prints one line per epoch and draws no bar."""

    def __init__(self, console: Console, clock: TrainingClock | None = None, *, live: bool = False) -> None:
        """With `live` a table of the workers, if there are several, is below the bar."""
        self.workers = WorkersTable() if live else None
        columns = (
            TextColumn("epoch {task.fields[epoch]}"),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f} %  loss {task.fields[loss]}  {task.fields[accuracy]}"),
            TextColumn("{task.fields[rate]} samples/s  {task.fields[left]}"),
        )
        super().__init__(console, *columns, progress=partial(_LiveProgress, clock, self.workers))
        self.run: Run | None = None
        self.task = self.bar.add_task("", total=None, visible=False, epoch="", loss="", accuracy="", rate="", left="")

    def begun(self, run: Run, notes: list[str]) -> None:
        self.start_bar()
        self.run = run
        w, c = run.workload, run.conditions
        for note in notes:
            self.console.print(note)
        threads = f", {c.threads} thread{'s' * (c.threads > 1)}" if c.device == "cpu" else ""
        self.console.print(
            f"{w.network} ({run.parameters:,} parameters) on {w.data}, batch {w.batch}, {w.optimizer} at {w.lr:g}, "
            f"{c.device_name}{threads}"
        )
        self.console.print(f"step: {run.step.kind} ({run.step.reason}); data: {run.data}")
        for device, operations in sorted(run.placement.items()):
            self.console.print(f"placement: {operations:,} operations of a step on {device}")
        if run.resumed:
            self.console.print(f"resuming after {count(len(run.epochs), 'epoch')} and {run.updates:,} updates")

    def advanced(self, progress: Advance) -> None:
        score = progress.score
        if self.workers is not None and progress.workers is not None:
            self.workers.update(progress.workers)
        left_steps = (progress.epochs - progress.epoch) * progress.steps - progress.step
        assert self.run is not None
        left_s = left_steps * self.run.workload.batch / max(progress.samples_per_s, 1e-9)
        self.bar.update(
            self.task,
            visible=True,
            total=progress.steps,
            completed=progress.step,
            epoch=f"{progress.epoch + 1}/{progress.epochs}",
            loss="–" if math.isnan(score.loss) else f"{score.loss:.4f}",
            accuracy="" if progress.workers else accuracies(score.accuracy, score.top_accuracy, self.run.shown_top),
            rate=f"{progress.samples_per_s:,.0f}",
            left=_workers(progress.workers) if progress.workers else f"{duration(max(0, round(left_s)))} left",
        )

    def finished_epoch(self, epoch: Epoch, run: Run) -> None:
        w, top = run.workload, run.shown_top
        told = [f"epoch {epoch.epoch}/{w.epochs}", f"loss {epoch.loss:.4f}"]
        if not math.isnan(epoch.train_accuracy):
            told.append(f"train {accuracies(epoch.train_accuracy, epoch.train_top_accuracy, top)}")
        if not math.isnan(epoch.test_accuracy):
            told.append(f"test {accuracies(epoch.test_accuracy, epoch.test_top_accuracy, top)}")
        elif not math.isnan(epoch.test_loss):
            told.append(f"test loss {epoch.test_loss:.4f}")
        if not math.isnan(epoch.test_metric):
            told.append(f"test {run.metric} {epoch.test_metric:.4g}")
        self.console.print("  ".join([*told, f"{epoch.samples_per_s:,.0f} samples/s", f"{epoch.wall_s:.2f} s"]))


def accuracies(accuracy: float, top_accuracy: float, top: int) -> str:
    """Empty without labels; without a top-n accuracy if `top` is 0."""
    if math.isnan(accuracy):
        return ""
    return f"top-1 {100 * accuracy:.2f} %" + (f"  top-{top} {100 * top_accuracy:.2f} %" if top else "")


def _workers(found: WorkersProgress) -> str:
    alive = f"{found.alive}/{found.workers} workers"
    return f"{found.updates_per_s:,.4g} updates/s  staleness {found.staleness:.1f}  {alive}"


def closing_table(run: Run) -> Table:
    scored, measured = not math.isnan(run.test_accuracy), not math.isnan(run.test_metric)
    return facts_table({
        "test accuracy": f"{100 * run.test_accuracy:.2f} %" * scored,
        f"test top-{run.workload.top}": f"{100 * run.test_top_accuracy:.2f} %" * (scored and run.shown_top > 0),
        "test loss": f"{run.test_loss:.4f}",
        f"test {run.metric}": f"{run.test_metric:.4g}" * measured,
        "updates": f"{run.updates:,}",
        "speed": f"{run.samples_per_s:,.0f} samples/s in training" if run.samples_per_s > 0 else "–",
        "time": f"{run.wall_s:.1f} s, of which training {run.train_s:.1f} s",
        **(distribution_facts(run.distribution) if run.distribution is not None else {}),
        **(_division(run.division) if run.division is not None else {}),
    })  # fmt: skip


def _division(found: Division) -> dict[str, str]:
    idle = "" if math.isnan(found.idle_share) else f"{percent(found.idle_share, 1)} of the passes' time"
    if idle and not math.isnan(found.predicted_idle_share):
        idle += f", predicted {percent(found.predicted_idle_share, 1)}"
    cut = f"{', '.join(found.cut[1:])} ({found.cut_by})" if found.pipeline > 1 else ""
    return {"division": str(found), "cut": cut, "idle": idle if found.pipeline > 1 else ""}


def distribution_facts(found: Distribution) -> dict[str, str]:
    ledger, virtual = found.ledger, found.driver == "virtual"
    waits, faults = math.isfinite(found.waiting_share), found.fault_count and found.faults
    lost = {"dropped": ledger.dropped, "refused": ledger.refused, "reassigned": ledger.returned}
    return {
        "strategy": f"{found.strategy.name}, {found.workers:,} {'virtual ' * virtual}workers",
        "virtual time": f"{found.seconds:,.6g} s, {found.updates_per_s:,.4g} updates/s" * virtual,
        "throughput": f"{found.updates_per_s:,.0f} updates/s" * (not virtual),
        "commits": f"{found.commits}; groups average by {found.collective}" * (not virtual),
        "waiting": f"{percent(found.waiting_share, 1)} of the workers' time" if waits else "",
        "staleness": f"mean {ledger.mean_staleness:.2f}, 99 % up to {ledger.staleness_up_to(0.99)}",
        "batches": ", ".join([f"{ledger.applied:,} applied", *(f"{n:,} {what}" for what, n in lost.items() if n)]),
        "faults": f"{found.fault_count}, the first: {found.faults[0].what}" if faults else "",
    }
