"""`paceline train`: trains a workload and keeps its record and checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.cli.console import JsonOption, TrustOption, console_for, output_json, warn_if_busy
from paceline.cli.options import (
    OUTPUT,
    WORKLOAD,
    DataDirOption,
    OutOption,
    ResumeOption,
    given_path,
    of_workload,
    takes_settings,
)
from paceline.cli.plan import load_plan
from paceline.errors import InputError, WorkloadError

if TYPE_CHECKING:
    from rich.console import Console

    from paceline.planning.plan import Plan
    from paceline.training.run import Run
    from paceline.workload import Workload

EXAMPLE = "Example: paceline train lenet5 --data mnist --epochs 5 --set dropout=0.2 --out runs/lenet"


@takes_settings("train")
def train(
    workload: Annotated[
        str | None,
        typer.Argument(help=WORKLOAD),
    ] = None,
    out: OutOption = None,
    resume: ResumeOption = None,
    plan: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", parser=given_path, help="Train as planned; settings given here override the plan."
        ),
    ] = None,
    data_dir: DataDirOption = None,
    log_placement: Annotated[
        bool, typer.Option("--log-placement", help="Count the operations of a step per device.")
    ] = False,
    checkpoint_every: Annotated[
        float, typer.Option(min=0.0, metavar="SECONDS", rich_help_panel=OUTPUT, help="Time between checkpoints.")
    ] = 20.0,
    tensorboard: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            parser=given_path,
            rich_help_panel=OUTPUT,
            help="Write TensorBoard events into a folder of DIR.",
        ),
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="With --measure: show parts and layers of an iteration while training.")
    ] = False,
    trust: TrustOption = False,
    json: JsonOption = None,
    *,
    given: dict[str, Any],
) -> None:
    """Train a network, in one process or distributed. The run is saved and can be resumed."""
    own, distribution = of_workload(given)
    step, measure = distribution.pop("step", "auto"), distribution.pop("measure", False)
    options: dict[str, Any] = {"data_dir": data_dir, "checkpoint_every": checkpoint_every, "tensorboard": tensorboard}
    options["trust"] = trust
    if live and not measure:
        raise WorkloadError("--live shows what --measure finds: give both")
    if resume is not None:
        if plan is not None:
            raise WorkloadError("--plan is for new runs: a resumed one continues as it was")
        if step != "auto" or log_placement:
            raise WorkloadError("--step and --log-placement are for new runs: a resumed one continues as it was")
        if out is not None:
            raise WorkloadError("--out and --resume cannot be combined: a resumed run stays in its directory")
        resume_run(resume, workload, own, distribution, measure=measure, live=live, json=json, **options)
        return
    if plan is None and workload is None:
        raise WorkloadError("name a workload to train (see paceline models), or --resume a run")
    train_run(
        _workload(workload, plan, own), distribution, out=out, measure=measure, live=live, json=json,
        step=step, log_placement=log_placement, **options,
    )  # fmt: skip


def _workload(place: str | None, plan: Path | None, given: dict[str, Any]) -> tuple[Workload | Plan, dict[str, Any]]:
    """What is trained, and the settings that go before those of a plan."""
    from paceline.workload import resolve

    if plan is None:
        assert place is not None
        return resolve(place, given), {}
    if place is not None:
        raise InputError(f"--plan {plan} says what to train: leave {place!r} out")
    return load_plan(plan), given


def train_run(
    workload: tuple[Workload | Plan, dict[str, Any]],
    distribution: dict[str, Any],
    *,
    out: Path | None = None,
    measure: bool = False,
    live: bool = False,
    json: str | None = None,
    console: Console | None = None,
    **options: Any,
) -> None:
    """Trains with progress on the terminal and shows the result; without `out` the run is kept in runs/NAME-N."""
    if distribution.get("workers", 1) > 1 and distribution.get("driver", "auto") in ("auto", "local"):
        from paceline.training.drivers.local.process_server import process_server

        process_server()  # it imports PyTorch while this process does

    from paceline.api.train import train
    from paceline.planning.plan import Plan
    from paceline.training.directory import next_directory, remove_if_empty

    what, given = workload
    if out is None:
        named = what.workload if isinstance(what, Plan) else what
        directory = next_directory(f"{named.network}-{named.data}")
    else:
        directory = out
    try:
        run = partial(train, what, out=directory, **given, **distribution, **options)
        _shown(run, directory, measure, json, console, live=live)
    except BaseException:
        if out is None:
            remove_if_empty(directory)
        raise


def resume_run(
    directory: Path,
    place: str | None,
    given: dict[str, Any],
    distribution: dict[str, Any],
    *,
    measure: bool,
    live: bool,
    json: str | None,
    **options: Any,
) -> None:
    from paceline.api.train import resume

    run = partial(resume, directory, place, **given, **distribution, **options)
    _shown(run, directory, measure, json, live=live)


def _shown(
    train: Callable[..., Run],
    directory: Path,
    measure: bool,
    json: str | None,
    console: Console | None = None,
    *,
    live: bool = False,
) -> None:
    """Draws the progress, and prints what came of it."""
    from paceline.cli.progress import TerminalWatcher, closing_table
    from paceline.record import dump

    console, clock = console or console_for(json), None
    if live:
        from paceline.training.measured_training import TrainingClock

        clock = TrainingClock(live=True)
    with TerminalWatcher(console, clock) as watcher:
        run = train(watcher=watcher, downloads=watcher.downloads, measure=clock or measure)
    page = directory / "summary.html"
    console.print(closing_table(run))
    warn_if_busy(run.conditions.busy)
    console.print(f"run: {directory}   summary: {page}", markup=False)
    if measure:
        _show_measured(run, directory, console)
    for warning in run.warnings:
        console.print(f"warning: {warning}", markup=False)
    output_json(dump(run), json)


def _show_measured(run: Run, directory: Path, console: Console) -> None:
    """Of one process its layers; of workers a row each, since their layers are in their own folders."""
    from paceline.cli.measure import show, show_parts
    from paceline.record import load
    from paceline.reporting.run_files import measured_folders
    from paceline.training.worker_measurements import worker_measurements

    place = measured_folders(directory)[-1:]
    if run.distribution is None:
        console.print()
        show(load(place[0] / "measurement.json"), console)
        console.print(f"tables, trace and plots: {place[0]}", markup=False)
        return
    found = worker_measurements(place[0], run.distribution.workers) if place else {}
    if not found:
        console.print("too few iterations to measure any worker's layers: train for more --epochs", markup=False)
        return
    console.print()
    show_parts([(f"worker {worker}", measurement) for worker, measurement in found.items()], console)
    console.print(f"layers of each worker, tables, trace and plots: {place[0]}", markup=False)
