"""`paceline data`: lists data sets, fetches one, and prints where it is."""

from __future__ import annotations

from typing import Annotated

import typer

from paceline import data
from paceline.api.listing import datasets
from paceline.cli.console import DownloadBar, JsonOption, console_for, output_json, output_listing
from paceline.cli.options import DataDirOption

app = typer.Typer(help="List, download and locate data sets.", no_args_is_help=True)


@app.command("list", epilog="Example: paceline data list")
def list_sources(data_dir: DataDirOption = None, json: JsonOption = None) -> None:
    """List the data sources and where each is stored."""
    output_listing(datasets(data_dir), json)


@app.command("fetch", epilog="Example: paceline data fetch mnist")
def fetch(
    name: Annotated[str, typer.Argument(metavar="NAME", help="mnist, fashion-mnist, cifar10, or images:URL.")],
    data_dir: DataDirOption = None,
    json: JsonOption = None,
) -> None:
    """Download a data set and verify its checksum."""
    console = console_for(json)
    with DownloadBar(console) as bar:
        place = data.fetch(name, cache=data_dir, progress=bar)
    console.print(f"{name}: {place}")
    output_json({"name": name, "path": str(place)}, json)


@app.command("path", epilog="Example: paceline data path mnist")
def path(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A data source (see paceline data list).")],
    data_dir: DataDirOption = None,
    json: JsonOption = None,
) -> None:
    """Print the path of a data set; exit code 1 if it is not downloaded."""
    place = data.path(name, cache=data_dir)
    output_json({"name": name, "path": str(place) if place else None}, json)
    if place is None:
        console_for(json).print(f"{name} is not downloaded yet: paceline data fetch {name}")
        raise typer.Exit(1)
    if json != "-":
        print(place)
