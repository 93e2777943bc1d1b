"""`paceline compare`: an experiment of many runs, kept as they finish, and their tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from paceline import busy_machine
from paceline.api.compare import compare as run
from paceline.api.compare import to_execute
from paceline.cli.console import JsonOption, complain, console_for, output_json, rows_table, warn_if_busy
from paceline.cli.options import DataDirOption, JobsOption, OutOption, ResumeOption, RetryOption, flag, path_option
from paceline.errors import InputError
from paceline.formatting import count
from paceline.record import to_json

if TYPE_CHECKING:
    from paceline.results.table import ResultsTable

EXAMPLE = "Example: paceline compare examples/strategies.toml --jobs 2 --out runs/strategies"


def compare(
    experiment: Annotated[
        list[Path] | None,
        typer.Argument(metavar="EXPERIMENT", help="TOML file of the experiment; with --collect, directories."),
    ] = None,
    out: OutOption = None,
    resume: ResumeOption = None,
    jobs: JobsOption = 1,
    quick: Annotated[
        bool, flag("quick", "Run the quick version, described in the section \\[quick] of the file.")
    ] = False,
    retry: RetryOption = False,
    list_runs: Annotated[bool, flag("list", "List the runs without starting them.")] = False,
    collect: Annotated[bool, flag("collect", "Collect the results of saved runs instead of running any.")] = False,
    data_dir: DataDirOption = None,
    tensorboard: Annotated[
        Path | None, path_option("Write TensorBoard events to DIR, one subdirectory per run.")
    ] = None,
    json: JsonOption = None,
) -> None:
    """Run an experiment: a grid of settings, with repetitions. It can be interrupted and resumed at any time."""
    console, places = console_for(json), experiment or []
    if collect:
        if resume is not None or quick or retry or list_runs or tensorboard is not None:
            raise InputError("--collect runs nothing: only --out and --json can be combined with it")
        _collect(places, out, json, console)
        return
    if len(places) > 1:
        raise InputError(f"one experiment at a time: {places[1]} is one too many (or is --collect missing?)")
    file = places[0] if places else None
    if list_runs:
        _list(file, resume, quick, json, console)
        return
    from paceline.cli.experiment_output import ExperimentProgress, raise_if_failed, show_tables

    machine = busy_machine.MachineWatch()
    with ExperimentProgress(console) as watcher:
        found = run(
            file, out=out, resume=resume, jobs=jobs, quick=quick, retry=retry, data_dir=data_dir,
            tensorboard=tensorboard, watcher=watcher, downloads=watcher.downloads,
        )  # fmt: skip
    show_tables(found, console)
    warn_if_busy(machine.said())
    place = found.home
    console.print(f"experiment: {place}   tables: {place}/results.csv, {place}/summary.csv")
    console.print(f"page: {place / 'report.html'}")
    output_json(_content(found), json)
    raise_if_failed(found, place, "compare")


def _collect(places: list[Path], out: Path | None, json: str | None, console: Console) -> None:
    from paceline.cli.experiment_output import show_tables
    from paceline.results.table import collect

    if out is not None and out.exists() and not out.is_dir():
        raise InputError(f"--out {out} is a file: choose a directory")
    found = collect(*places)
    show_tables(found, console)
    for skipped in found.skipped:
        complain(f"skipped {skipped.place}: {skipped.reason}")
    said = count(len(found.rows), "run")
    said += f", {len(found.skipped)} skipped" if found.skipped else ""
    if out is None:
        console.print(f"{said}; write the tables with --out DIR")
    else:
        console.print(f"{said}   tables: {', '.join(str(path) for path in found.write(out))}")
    output_json(_content(found), json)


def _list(file: Path | None, resume: Path | None, quick: bool, json: str | None, console: Console) -> None:
    from paceline.experiment.planning import interleaved

    study, _ = to_execute(file, resume, quick)
    runs = interleaved(study.runs(), study.seed)
    console.print(rows_table(
        {"run": run.id, "kind": run.kind, "setting": run.label, "repetition": run.repetition, "seed": run.workload.seed}
        for run in runs
    ))  # fmt: skip
    settings = count(len({run.setting for run in runs}), "setting")
    console.print(f"{study.name}: {len(runs)} runs, {settings}, in this order")
    output_json([{"id": run.id, "seed": run.workload.seed, **to_json(run)} for run in runs], json)


def _content(found: ResultsTable) -> Any:
    return {key: to_json(getattr(found, key)) for key in ("name", "title", "rows", "summary", "published", "skipped")}
