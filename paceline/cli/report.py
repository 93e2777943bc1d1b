"""`paceline report`: one page about all records in directories."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli.console import JsonOption, complain, console_for, output_json
from paceline.cli.options import given_path

if TYPE_CHECKING:
    from paceline.reporting.writing import Written

EXAMPLE = "Example: paceline report runs/lenet runs/strategies --out report.html --figures figures"


def report(
    places: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Directories or files with saved records.")],
    out: Annotated[
        Path, typer.Option(metavar="FILE", parser=given_path, help="The page, or a directory for report.html.")
    ] = Path("report.html"),
    title: Annotated[str | None, typer.Option(metavar="TEXT", help="Title of the page.")] = None,
    figures: Annotated[
        Path | None, typer.Option(metavar="DIR", parser=given_path, help="Directory for the figures as PNG and SVG.")
    ] = None,
    price: Annotated[
        float | None, typer.Option(metavar="NUMBER", help="Price of a machine per hour; adds the cost of the runs.")
    ] = None,
    json: JsonOption = None,
) -> None:
    """Write one self-contained HTML page: the answer, interactive figures, and a table of all runs."""
    from paceline.reporting import report as write

    written = write(places, out, title=title, figures=figures, price=price)
    for skipped in written.skipped:
        complain(f"skipped {skipped.place}: {skipped.reason}")
    console = console_for(json)
    console.print(_counted(written), markup=False)
    console.print(f"report: {written.path} ({written.size_bytes / 1e6:.1f} MB)", markup=False)
    if written.figures:
        console.print(f"figures: {figures} ({len(written.figures)} files)", markup=False)
    content = {
        "report": str(written.path), "size_bytes": written.size_bytes, "counts": written.counts,
        "skipped": [{"place": s.place, "reason": s.reason} for s in written.skipped],
        "figures": [str(path) for path in written.figures],
    }  # fmt: skip
    output_json(content, json)


def _counted(written: Written) -> str:
    said = [f"{many:,} {what if many != 1 else what.removesuffix('s')}" for what, many in written.counts.items()]
    if written.skipped:
        said.append(f"{len(written.skipped):,} skipped")
    return ", ".join(said)
