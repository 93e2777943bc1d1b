"""`paceline compare`: a study in one file and one command: many runs, kept as they finish, and their tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline import busy_machine
from paceline.cli.console import JsonOption, console_for, output_json, warn_if_busy
from paceline.cli.options import DataDirOption, OutOption, ResumeOption
from paceline.errors import InputError, PacelineError

if TYPE_CHECKING:
    from rich.console import Console

    from paceline.experiment import ResultsTable

EXAMPLE = "Example: paceline compare examples/strategies.toml --jobs 2 --out runs/strategies"


def compare(
    experiment: Annotated[
        list[Path] | None, typer.Argument(help="The experiment's TOML file; with --collect, directories.")
    ] = None,
    out: OutOption = None,
    resume: ResumeOption = None,
    jobs: Annotated[int, typer.Option(help="Runs at a time; they share the cores.")] = 1,
    quick: Annotated[bool, typer.Option("--quick", help="With what [quick] says, as a trial of the whole.")] = False,
    retry: Annotated[bool, typer.Option("--retry", help="When resuming, make failed runs again.")] = False,
    list_runs: Annotated[bool, typer.Option("--list", help="List the runs without making them.")] = False,
    collect: Annotated[bool, typer.Option("--collect", help="Only read what directories hold.")] = False,
    data_dir: DataDirOption = None,
    tensorboard: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write events for TensorBoard, a folder of DIR for each run.")
    ] = None,
    json: JsonOption = None,
) -> None:
    """Run an experiment: settings from grids, repeated; it can be interrupted and resumed at any moment."""
    console, places = console_for(json), experiment or []
    if collect:
        if resume is not None or quick or retry or list_runs or tensorboard is not None:
            raise InputError("--collect only reads what is there: it goes with --out and --json alone")
        _collect(places, out, json, console)
        return
    if len(places) > 1:
        raise InputError(f"one experiment at a time: {places[1]} is one too many, or --collect is missing")
    file = places[0] if places else None
    if list_runs:
        _list(file, resume, quick, json, console)
        return
    _execute(
        file, console, json,
        out=out, resume=resume, jobs=jobs, quick=quick, retry=retry, data_dir=data_dir, tensorboard=tensorboard,
    )  # fmt: skip


def _execute(file: Path | None, console: Console, json: str | None, **options: Any) -> None:
    from paceline.api.compare import compare as run
    from paceline.api.compare import directory_of
    from paceline.cli.experiment_progress import ExperimentProgress

    machine = busy_machine.MachineWatch()
    with ExperimentProgress(console) as watcher:
        found = run(file, watcher=watcher, downloads=watcher.downloads, **options)
    _show(found, console)
    warn_if_busy(machine.said())
    place = directory_of(found)
    console.print(f"experiment: {place}   tables: {place}/results.csv, {place}/summary.csv", markup=False)
    console.print(f"page: {place / 'report.html'}", markup=False)
    output_json(_content(found), json)
    failed = [row for row in found.rows if row["status"] == "failed"]
    if failed:
        raise PacelineError(
            f"{len(failed)} of {len(found.rows)} runs failed, the first with: {failed[0]['error']}; "
            f"what went wrong is in {place / failed[0]['directory']}; once it is fixed: "
            f"paceline compare --resume {place} --retry"
        )


def _show(found: ResultsTable, console: Console) -> None:
    from paceline.cli.experiment_tables import published_table, summary_table

    if not console.is_terminal:
        console.width = 240  # a file has room for all columns
    console.print(summary_table(found))
    if found.published:
        console.print()
        console.print(published_table(found))


def _collect(places: list[Path], out: Path | None, json: str | None, console: Console) -> None:
    from paceline.cli.console import complain
    from paceline.experiment import collect

    if out is not None and out.exists() and not out.is_dir():
        raise InputError(f"--out {out} is a file: choose a directory")
    found = collect(*places)
    _show(found, console)
    for skipped in found.skipped:
        complain(f"skipped {skipped.place}: {skipped.reason}")
    count = f"{len(found.rows)} run{'s' * (len(found.rows) != 1)}"
    count += f", {len(found.skipped)} skipped" if found.skipped else ""
    if out is None:
        console.print(f"{count}; write the tables with --out DIR", markup=False)
    else:
        console.print(f"{count}   tables: {', '.join(str(path) for path in found.write(out))}", markup=False)
    output_json(_content(found), json)


def _list(file: Path | None, resume: Path | None, quick: bool, json: str | None, console: Console) -> None:
    from paceline.api.compare import to_execute
    from paceline.cli.experiment_tables import plan_table
    from paceline.experiment.planning import interleaved
    from paceline.record import to_json

    study, _ = to_execute(file, resume, quick)
    runs = interleaved(study.runs(), study.seed)
    console.print(plan_table(runs))
    settings = len({run.setting for run in runs})
    console.print(f"{study.name}: {len(runs)} runs, {settings} setting{'s' * (settings != 1)}, in this order")
    output_json([{"id": run.id, "seed": run.seed, **to_json(run)} for run in runs], json)


def _content(found: ResultsTable) -> Any:
    from paceline.record import to_json

    return {
        "name": found.name,
        "title": found.title,
        "rows": to_json(found.rows),
        "summary": to_json(found.summary),
        "published": to_json(found.published),
        "skipped": to_json(found.skipped),
    }
