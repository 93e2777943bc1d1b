"""`paceline train`: trains a workload and keeps its record and checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.cli.console import JsonOption, check_json, console_for, hand_over
from paceline.cli.distributed import ClusterOptions, Distributed, DriverOptions, StrategyOptions
from paceline.cli.option_groups import takes
from paceline.cli.plan import as_planned
from paceline.errors import PacelineError, WorkloadError

if TYPE_CHECKING:
    from rich.console import Console

    from paceline.cli.progress import TerminalWatcher
    from paceline.cost.prediction import Prediction
    from paceline.measurement.measurement import Measurement
    from paceline.training.measured_training import TrainingClock
    from paceline.training.run import Run
    from paceline.training.watcher import Watcher
    from paceline.workload import Workload

EXAMPLE = "Example: paceline train lenet5 --data mnist --epochs 5 --set dropout=0.2 --out runs/lenet"


@takes(strategy=StrategyOptions, cluster=ClusterOptions, driver=DriverOptions)
def train(
    workload: Annotated[
        str | None,
        typer.Argument(help="A built-in name (see paceline models), a TOML file, or module:function."),
    ] = None,
    data: Annotated[str | None, typer.Option(help="Data source, see paceline data list; NAME:N takes N.")] = None,
    batch: Annotated[int | None, typer.Option(help="Samples per step.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the training data.")] = None,
    optimizer: Annotated[str | None, typer.Option(help="sgd, momentum, nesterov, … adam, adamw, nadam.")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate.")] = None,
    clip_norm: Annotated[float | None, typer.Option(help="Largest norm of the gradient; 0: no clipping.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or cuda:N.")] = None,
    threads: Annotated[int | None, typer.Option(help="CPU threads; 0 takes what suits.")] = None,
    precision: Annotated[str | None, typer.Option(help="float32, tf32, bfloat16 or float64.")] = None,
    seed: Annotated[int | None, typer.Option(help="Every random number follows from it.")] = None,
    step: Annotated[str, typer.Option(help="auto, plain, flat, compiled or graph.")] = "auto",
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any other key of a workload.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Directory of the run; runs/NAME-N if not given.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Resume the run in this directory.")] = None,
    plan: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Train as this plan says; what is given here goes before it.")
    ] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Where data sets are kept.")] = None,
    measure: Annotated[bool, typer.Option("--measure", help="Measure every layer as it trains.")] = False,
    log_placement: Annotated[bool, typer.Option("--log-placement", help="Count operations by device.")] = False,
    checkpoint_every: Annotated[float, typer.Option(min=0.0, help="Seconds between checkpoints.")] = 20.0,
    tensorboard: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write events for TensorBoard, into a folder of DIR.")
    ] = None,
    json: JsonOption = None,
    *,
    strategy: StrategyOptions,
    cluster: ClusterOptions,
    driver: DriverOptions,
) -> None:
    """Train a network, in this process or distributed; the run is saved and can be resumed."""
    from paceline.workload import parse_settings

    flags = {
        "data": data, "batch": batch, "epochs": epochs, "optimizer": optimizer, "lr": lr,
        "clip_norm": clip_norm, "device": device, "threads": threads, "precision": precision, "seed": seed,
    }  # fmt: skip
    given: dict[str, Any] = {key: value for key, value in flags.items() if value is not None}
    given |= parse_settings(settings or [])
    prediction = None
    if plan is not None:
        if resume is not None:
            raise WorkloadError("--plan is for new runs: a resumed one continues as it was")
        workload, given, strategy, prediction = as_planned(plan, workload, given, strategy)
    if resume is None and workload is None:
        raise WorkloadError("name a workload to train (see paceline models), or --resume a run")
    if resume is not None and (step != "auto" or log_placement):
        raise WorkloadError("--step and --log-placement are for new runs: a resumed one continues as it was")
    if resume is not None and out is not None:
        raise WorkloadError("--out and --resume exclude each other: a resumed run stays in its directory")
    options: dict[str, Any] = {"cache": data_dir, "checkpoint_every_s": checkpoint_every}
    distributed = Distributed(strategy, cluster, driver)
    if distributed.asked_for and (step != "auto" or log_placement):
        raise WorkloadError("--step and --log-placement are for training in one process, without a strategy")
    if resume is None and not distributed.asked_for:
        options |= {"step": step, "log_placement": log_placement}
    if distributed.asked_for and distributed.driver.driver in (None, "local"):
        from paceline.training.drivers.local.process_server import process_server

        process_server()  # it imports PyTorch while this process does
    start(
        workload, given, out=out, resume=resume, options=options, measure=measure, json=json, distributed=distributed,
        prediction=prediction, tensorboard=tensorboard,
    )  # fmt: skip


def start(
    place: str | None,
    given: dict[str, Any],
    *,
    name: str | None = None,
    out: Path | None = None,
    resume: Path | None = None,
    options: dict[str, Any] | None = None,
    measure: bool = False,
    json: str | None = None,
    distributed: Distributed | None = None,
    prediction: Prediction | None = None,
    tensorboard: Path | None = None,
) -> Path:
    """Trains or resumes training with progress on the terminal, and writes the summary page.

    Without `out` the run is kept in runs/NAME-N; what `measure` finds goes into a folder of it, a plan's `prediction`
    beside its record.
    """
    from paceline.cli.progress import TerminalWatcher, closing_table
    from paceline.record import dump, load, save
    from paceline.reporting.run_files import write_run_files
    from paceline.training.directory import next_directory, remove_if_empty
    from paceline.workload import resolve

    check_json(json)
    console = console_for(json)
    several = distributed is not None and distributed.asked_for
    clock = _new_clock() if measure and not several else None
    watcher = TerminalWatcher(console)
    options = {**(options or {}), "clock": clock, "progress": watcher.downloads}
    if distributed is not None and several:
        _check_sizes(distributed)
        distributed.check(resuming=resume is not None, measuring=measure)
        options["measuring"] = measure
    if resume is not None:
        directory = resume
        work = partial(_resume, directory, place, given, options, distributed)
    else:
        assert place is not None
        workload = resolve(place, given)
        directory = out or next_directory(name or f"{workload.network}-{workload.data}")
        work = partial(_run, workload, directory, options, distributed if several else None)
    try:
        with watcher, _followed(watcher, tensorboard, directory, resume is None) as followed:
            run = work(followed)
    except BaseException:
        if watcher.run is not None:
            with suppress(PacelineError):  # what ended the run is what is to be said
                if prediction is not None:
                    save(prediction, directory / "prediction.json")
                write_run_files(load(directory), directory)
                if clock is not None:
                    _write_measurement(clock, load(directory), directory)
        elif resume is None and out is None:
            remove_if_empty(directory)
        raise
    if prediction is not None:
        save(prediction, directory / "prediction.json")
    page = write_run_files(run, directory)
    console.print(closing_table(run))
    console.print(f"run: {directory}   summary: {page}", markup=False)
    if clock is not None:
        _show_measurement(clock, run, directory, console)
    elif measure:
        _show_workers(run, directory, console)
    if measure:
        write_run_files(run, directory)  # once more, with the layers
    for warning in run.warnings:
        console.print(f"warning: {warning}", markup=False)
    hand_over(dump(run), json)
    return page


def _check_sizes(distributed: Distributed) -> None:
    """Whether so many workers can be had at all, before anything is made for each of them."""
    from paceline.training.limits import FOOTPRINTS, check_workers

    driver = distributed.driver.driver or "local"
    if distributed.strategy.strategy is not None and driver in FOOTPRINTS:
        _, workers = distributed.strategy.build()
        check_workers(workers, driver)


@contextmanager
def _followed(watcher: TerminalWatcher, tensorboard: Path | None, directory: Path, new: bool) -> Iterator[Watcher]:
    """The watcher, and beside it one for TensorBoard, where the run has the name of its directory."""
    if tensorboard is None:
        yield watcher
        return
    from paceline.reporting.tensorboard import TensorBoard, check_unused, check_writable
    from paceline.training.watcher import Several

    place = tensorboard / directory.resolve().name
    check_writable(place)
    if new:
        check_unused(place)
    with TensorBoard(place) as board:
        yield Several(watcher, board)


def _new_clock() -> TrainingClock:
    from paceline.training.measured_training import TrainingClock

    return TrainingClock()


def _show_measurement(clock: TrainingClock, run: Run, directory: Path, console: Console) -> None:
    from paceline.cli.measure import show

    found, place = _write_measurement(clock, run, directory)
    console.print()
    show(found, console)
    console.print(f"tables, trace and plots: {place}", markup=False)


def _show_workers(run: Run, directory: Path, console: Console) -> None:
    """Every worker's parts in a row; its layers are in its own folder."""
    from paceline.cli.measure import show_parts
    from paceline.reporting.measurement_files import write_measurement
    from paceline.training.drivers.local.worker_measurements import worker_measurements

    assert run.distribution is not None
    place = directory / "measure"
    found = worker_measurements(place, run.distribution.workers)
    if not found:
        console.print("too few iterations to measure any worker's layers: train for more --epochs", markup=False)
        return
    for worker, measurement in found.items():
        write_measurement(measurement, place / f"worker-{worker}")
    console.print()
    show_parts([(f"worker {worker}", measurement) for worker, measurement in found.items()], console)
    console.print(f"layers of each worker, tables, trace and plots: {place}", markup=False)


def _write_measurement(clock: TrainingClock, run: Run, directory: Path) -> tuple[Measurement, Path]:
    """Into the folder `measure` of the run; one that is there from before a resumption is left as it is."""
    from paceline.reporting.experiment_table import experiment_of_run
    from paceline.reporting.measurement_files import write_measurement

    found = clock.measurement()
    names = ("measure" if number == 1 else f"measure-{number}" for number in count(1))
    place = next(directory / name for name in names if not (directory / name).exists())
    write_measurement(found, place, experiment_of_run(run, clock.quarters, directory))
    return found, place


def _run(
    workload: Workload, out: Path, options: dict[str, Any], distributed: Distributed | None, watcher: Watcher
) -> Run:
    from paceline.training import trainer

    if distributed is not None:
        return distributed.run(workload, out, watcher, **options)
    return trainer.run(workload, out=out, watcher=watcher, **options)


def _resume(
    directory: Path,
    place: str | None,
    given: dict[str, Any],
    options: dict[str, Any],
    distributed: Distributed | None,
    watcher: Watcher,
) -> Run:
    from paceline.training import trainer
    from paceline.workload import given_by, resolve

    if place is not None:  # what was named again must be what was saved
        given = {"network": resolve(place, given).network, **given_by(place), **given}
    if distributed is not None and distributed.continues(directory):
        if options.get("clock") is not None:
            raise WorkloadError("--measure samples workers from the beginning of a run: this one continues without it")
        return distributed.resume(directory, given, watcher, **options)
    return trainer.resume(directory, changes=given, watcher=watcher, **options)
