"""`paceline train`: trains a workload and keeps its record and checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from paceline.cli.console import JsonOption, console_for, output_json, warn_if_busy
from paceline.cli.measure import show, show_parts
from paceline.cli.options import (
    OUTPUT,
    WORKLOAD,
    DataDirOption,
    OutOption,
    ResumeOption,
    TrustOption,
    flag,
    of_workload,
    path_option,
    takes_settings,
)
from paceline.errors import InputError, WorkloadError
from paceline.record import dump, load
from paceline.workload import Workload, resolve

if TYPE_CHECKING:
    from paceline.planning.plan import Plan
    from paceline.training.run import Run

EXAMPLE = "Example: paceline train lenet5 --data mnist --epochs 5 --set dropout=0.2 --out runs/lenet"


@takes_settings("train")
def train(
    given: dict[str, Any],
    workload: Annotated[str | None, typer.Argument(metavar="WORKLOAD", help=WORKLOAD)] = None,
    out: OutOption = None,
    resume: ResumeOption = None,
    plan: Annotated[
        Path | None, path_option("Train with the settings of this plan; options given here override it.", "FILE")
    ] = None,
    data_dir: DataDirOption = None,
    log_placement: Annotated[
        bool, flag("log-placement", "Print how many operations of a step run on which device.")
    ] = False,
    checkpoint_every: Annotated[
        float, typer.Option(min=0.0, metavar="SECONDS", rich_help_panel=OUTPUT, help="Time between checkpoints.")
    ] = 20.0,
    tensorboard: Annotated[
        Path | None, path_option("Write TensorBoard events to a subdirectory of DIR.", "DIR", OUTPUT)
    ] = None,
    live: Annotated[
        bool, flag("live", "Show what each worker does while training; with --measure, also parts and layers.")
    ] = False,
    trust: TrustOption = False,
    json: JsonOption = None,
) -> None:
    """Train a network, in one process or distributed. The run is saved and can be resumed."""
    own, distribution = of_workload(given)
    step, measure = distribution.pop("step", "auto"), distribution.pop("measure", False)
    options: dict[str, Any] = {"data_dir": data_dir, "checkpoint_every": checkpoint_every, "tensorboard": tensorboard}
    options |= {"trust": trust, **distribution}
    if live and not (measure or resume or plan or (distribution.get("workers") or 1) > 1):
        raise WorkloadError("--live shows workers, or what --measure finds: give --workers or --measure, too")
    if resume is not None:
        from paceline.api.train import resume as continue_run

        if plan is not None:
            raise WorkloadError("--plan is for new runs: a resumed one continues as it was")
        if step != "auto" or log_placement:
            raise WorkloadError("--step and --log-placement are for new runs: a resumed one continues as it was")
        if out is not None:
            raise WorkloadError("--out and --resume cannot be combined: a resumed run stays in its directory")
        run = partial(continue_run, resume, workload, **own, **options)
        _follow(run, resume, measure, json, console_for(json), live)
        return
    options |= {"step": step, "log_placement": log_placement}
    if plan is not None:
        if workload is not None:
            raise InputError(f"--plan {plan} says what to train: leave {workload!r} out")
        from paceline.api.planned import load_plan

        train_run(load_plan(plan), out=out, measure=measure, live=live, json=json, **own, **options)
    elif workload is not None:
        train_run(resolve(workload, own), out=out, measure=measure, live=live, json=json, **options)
    else:
        raise WorkloadError("name a workload to train (see paceline models), or --resume a run")


def train_run(
    what: Workload | Plan,
    *,
    out: Path | None = None,
    measure: bool = False,
    live: bool = False,
    json: str | None = None,
    console: Console | None = None,
    **options: Any,
) -> None:
    """Trains with progress on the terminal and shows the result. Without `out`, the run is saved in runs/NAME-N."""
    several = (options.get("workers") or 1) > 1 or any(
        options.get(key, 1) not in (None, 1) for key in ("pipeline", "tensor")
    )
    if several and options.get("driver", "auto") in ("auto", "local"):
        from paceline.training.drivers.local.process_server import process_server

        process_server()  # it imports PyTorch while this process does

    from paceline.api.train import train
    from paceline.output_directory import given_or_next
    from paceline.planning.plan import Plan

    workload = what.workload if isinstance(what, Plan) else what
    with given_or_next(out, f"{workload.network}-{workload.data}") as directory:
        run = partial(train, what, out=directory, **options)
        _follow(run, directory, measure, json, console or console_for(json), live)


def _follow(
    train: Callable[..., Run], directory: Path, measure: bool, json: str | None, console: Console, live: bool
) -> None:
    from paceline.cli.progress import TerminalWatcher, closing_table
    from paceline.training.measured_training import TrainingClock

    clock = TrainingClock(live=True) if live and measure else None
    with TerminalWatcher(console, clock, live=live) as watcher:
        run = train(watcher=watcher, downloads=watcher.downloads, measure=clock or measure)
    console.print(closing_table(run))
    warn_if_busy(run.conditions.busy)
    console.print(f"run: {directory}   summary: {directory / 'summary.html'}")
    if measure:
        _show_measured(run, directory, console)
    for warning in run.warnings:
        console.print(f"warning: {warning}")
    output_json(dump(run), json)


def _show_measured(run: Run, directory: Path, console: Console) -> None:
    """The layers of a single process, or one row per worker; their layers are in their own folders."""
    from paceline.reporting.record_files import measured_folders
    from paceline.training.worker_measurements import worker_measurements

    place = next(reversed(measured_folders(directory)), directory)
    found = worker_measurements(place, run.distribution.workers) if run.distribution is not None else {}
    if run.distribution is not None and not found:
        console.print("too few iterations to measure any worker's layers: train for more --epochs")
        return
    console.print()
    if run.distribution is None:
        show(load(place / "measurement.json"), console)
    else:
        show_parts([(f"worker {worker}", measurement) for worker, measurement in found.items()], console)
    console.print(f"{'layers of each worker, ' if found else ''}tables, trace and plots: {place}")
