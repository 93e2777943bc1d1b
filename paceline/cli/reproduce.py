"""`paceline reproduce`: repeats a published study, with its own figures beside ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.cli.console import JsonOption, console_for, output_json
from paceline.cli.options import DataDirOption, OutOption, ResumeOption
from paceline.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from paceline.reproduction.reproducing import Reproduced

EXAMPLE = "Example: paceline reproduce elgato --quick --out runs/elgato"


def reproduce(
    study: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The study; without a name, all are listed.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A small version, in minutes on two cores.")] = False,
    out: OutOption = None,
    resume: ResumeOption = None,
    jobs: Annotated[int, typer.Option(metavar="N", help="Runs at a time; they share the cores.")] = 1,
    retry: Annotated[bool, typer.Option("--retry", help="With --resume, repeat failed runs.")] = False,
    data_dir: DataDirOption = None,
    json: JsonOption = None,
) -> None:
    """Repeat a published study and report on it. It can be interrupted and resumed at any time."""
    console = console_for(json)
    if study is None and resume is None:
        if quick or retry or out is not None:
            raise InputError("name a study: paceline reproduce lists them")
        from paceline.api.listing import studies
        from paceline.cli.tables import rows_table

        console.print(rows_table(studies().rows))
        output_json([{"name": each.name, "title": each.title} for each in studies()], json)
        return
    from paceline.api.reproduce import reproduce as make
    from paceline.cli.experiment_progress import ExperimentProgress
    from paceline.cli.experiment_tables import raise_if_failed

    with ExperimentProgress(console) as watcher:
        made = make(
            study, quick=quick, out=out, resume=resume, jobs=jobs, retry=retry, data_dir=data_dir,
            downloads=watcher.downloads, watcher=watcher,
        )  # fmt: skip
    _show(made, console)
    output_json(_content(made), json)
    raise_if_failed(made.found, made.directory, "reproduce")


def _show(made: Reproduced, console: Console) -> None:
    from paceline.cli.experiment_tables import summary_table

    if not console.is_terminal:
        console.width = 240  # a file has room for all columns
    console.print(summary_table(made.found))
    console.print()
    for finding in made.findings:
        console.print(finding, markup=False)
    console.print(f"report: {made.written.path} ({made.written.size_bytes / 1e6:.1f} MB)", markup=False)


def _content(made: Reproduced) -> Any:
    from paceline.record import to_json

    return {
        "study": made.study.name, "title": made.found.title, "directory": str(made.directory),
        "report": str(made.written.path), "findings": made.findings,
        "published": to_json(made.conclusions.published), "rows": to_json(made.found.rows),
        "summary": to_json(made.found.summary),
    }  # fmt: skip
