"""`paceline reproduce`: repeats a published study, with its own figures beside ours."""

from __future__ import annotations

from typing import Annotated

import typer

from paceline.api.listing import studies
from paceline.api.reproduce import reproduce as make
from paceline.cli.console import JsonOption, console_for, output_json, rows_table
from paceline.cli.options import DataDirOption, JobsOption, OutOption, ResumeOption, RetryOption, flag
from paceline.errors import InputError
from paceline.record import to_json

EXAMPLE = "Example: paceline reproduce elgato --quick --out runs/elgato"


def reproduce(
    study: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Name of the study; without one, all studies are listed.")
    ] = None,
    quick: Annotated[bool, flag("quick", "Run a small version, which takes minutes on two cores.")] = False,
    out: OutOption = None,
    resume: ResumeOption = None,
    jobs: JobsOption = 1,
    retry: RetryOption = False,
    data_dir: DataDirOption = None,
    json: JsonOption = None,
) -> None:
    """Reproduce a published study and write a report. It can be interrupted and resumed at any time."""
    console = console_for(json)
    if study is None and resume is None:
        if quick or retry or out is not None:
            raise InputError("name a study: paceline reproduce lists them")
        console.print(rows_table(studies().rows))
        output_json([{"name": each.name, "title": each.title} for each in studies()], json)
        return
    from paceline.cli.experiment_output import ExperimentProgress, raise_if_failed, show_tables

    with ExperimentProgress(console) as watcher:
        made = make(
            study, quick=quick, out=out, resume=resume, jobs=jobs, retry=retry, data_dir=data_dir,
            downloads=watcher.downloads, watcher=watcher,
        )  # fmt: skip
    show_tables(made.table, console)
    console.print()
    for finding in made.findings:
        console.print(finding)
    console.print(f"report: {made.written.path} ({made.written.size_bytes / 1e6:.1f} MB)")
    content = {
        "study": made.study.name, "title": made.table.title, "directory": made.table.home, "report": made.page,
        "findings": made.findings, "published": to_json(made.conclusions.published),
        "rows": to_json(made.table.rows), "summary": to_json(made.table.summary),
    }  # fmt: skip
    output_json(content, json)
    raise_if_failed(made.table, made.table.home, "reproduce")
