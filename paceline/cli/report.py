"""`paceline report`: one page about all records in directories."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from paceline.cli.console import JsonOption, complain, console_for, output_json
from paceline.cli.options import option, path_option

EXAMPLE = "Example: paceline report runs/lenet runs/strategies --out report.html --figures figures"


def report(
    places: Annotated[list[Path], typer.Argument(metavar="DIR", help="Directories or files with saved records.")],
    out: Annotated[Path, path_option("File for the page, or a directory for report.html.", "FILE")] = Path(
        "report.html"
    ),
    title: Annotated[str | None, option("Title of the page.")] = None,
    figures: Annotated[Path | None, path_option("Also write the figures as PNG and SVG into this directory.")] = None,
    price: Annotated[float | None, option("Price per machine and hour; adds the cost of each run.", "NUMBER")] = None,
    json: JsonOption = None,
) -> None:
    """Write one self-contained HTML page: a summary, interactive figures, and a table of all runs."""
    from paceline.reporting.page import report as write

    written = write(places, out, title=title, figures=figures, price=price)
    for skipped in written.skipped:
        complain(f"skipped {skipped.place}: {skipped.reason}")
    console = console_for(json)
    said = [f"{many:,} {what if many != 1 else what.removesuffix('s')}" for what, many in written.counts.items()]
    said += [f"{len(written.skipped):,} skipped"] if written.skipped else []
    console.print(", ".join(said))
    console.print(f"report: {written.path} ({written.size_bytes / 1e6:.1f} MB)")
    if written.figures:
        console.print(f"figures: {figures} ({len(written.figures)} files)")
    content = asdict(written)
    output_json({"report": content.pop("path"), **content}, json)
