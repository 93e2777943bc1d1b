"""`paceline train`: trains a workload and keeps its record and checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from paceline.cli.console import JsonOption, console_for, hand_over
from paceline.errors import WorkloadError

EXAMPLE = "Example: paceline train lenet5 --data mnist --epochs 5 --set dropout=0.2 --out runs/lenet"


def train(
    workload: Annotated[
        str | None,
        typer.Argument(help="A built-in name (see paceline models), a TOML file, or module:function."),
    ] = None,
    data: Annotated[str | None, typer.Option(help="Data source, see paceline data list; NAME:N takes N.")] = None,
    batch: Annotated[int | None, typer.Option(help="Samples a step.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the training data.")] = None,
    optimizer: Annotated[str | None, typer.Option(help="sgd, momentum, nesterov, adagrad, … adam, nadam.")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or cuda:N.")] = None,
    threads: Annotated[int | None, typer.Option(help="CPU threads; 0 takes what suits.")] = None,
    precision: Annotated[str | None, typer.Option(help="float32, tf32, bfloat16 or float64.")] = None,
    seed: Annotated[int | None, typer.Option(help="Every random number follows from it.")] = None,
    step: Annotated[str, typer.Option(help="auto, plain, flat, compiled or graph.")] = "auto",
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any other key of a workload.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Directory of the run; runs/NAME-N if not given.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with the run in this directory.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Where data sets are kept.")] = None,
    log_placement: Annotated[bool, typer.Option("--log-placement", help="Count operations by device.")] = False,
    json: JsonOption = None,
) -> None:
    """Train a network; the run is saved and can be resumed."""
    from paceline.workload import parse_settings

    flags = {
        "data": data, "batch": batch, "epochs": epochs, "optimizer": optimizer, "lr": lr, "device": device,
        "threads": threads, "precision": precision, "seed": seed,
    }  # fmt: skip
    given: dict[str, Any] = {key: value for key, value in flags.items() if value is not None}
    given |= parse_settings(settings or [])
    if resume is None and workload is None:
        raise WorkloadError("name a workload to train (see paceline models), or --resume a run")
    if resume is not None and out is not None:
        raise WorkloadError("--out and --resume exclude each other: a resumed run stays in its directory")
    start(workload, given, step=step, out=out, resume=resume, data_dir=data_dir, log_placement=log_placement, json=json)


def start(
    place: str | None,
    given: dict[str, Any],
    *,
    step: str = "auto",
    out: Path | None = None,
    resume: Path | None = None,
    data_dir: Path | None = None,
    log_placement: bool = False,
    json: str | None = None,
) -> Path:
    """Trains or goes on training with progress on the terminal, and writes the summary page."""
    from paceline.cli.progress import TerminalWatcher, closing_table
    from paceline.record import dump
    from paceline.report.page import write_summary
    from paceline.train import trainer
    from paceline.train.directory import next_directory
    from paceline.workload import resolve

    console = console_for(json)
    with TerminalWatcher(console) as watcher:
        if resume is not None:
            if place is not None:
                given = {"network": resolve(place, given).network, **given}
            directory = resume
            run = trainer.resume(resume, changes=given, cache=data_dir, watcher=watcher)
        else:
            assert place is not None
            workload = resolve(place, given)
            directory = out or next_directory(f"{workload.network}-{workload.data}")
            run = trainer.run(
                workload, step=step, out=directory, cache=data_dir, watcher=watcher, log_placement=log_placement
            )
    page = write_summary(run, directory)
    console.print(closing_table(run))
    console.print(f"run: {directory}   summary: {page}", markup=False)
    hand_over(dump(run), json)
    return page
