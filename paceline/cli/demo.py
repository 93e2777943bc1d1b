"""`paceline demo`: a first run on bundled data, with a page to look at."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from paceline.cli.console import JsonOption

EXAMPLE = "Example: paceline demo"


def demo(
    out: Annotated[Path | None, typer.Option(help="Directory of the run; runs/demo-N if not given.")] = None,
    json: JsonOption = None,
) -> None:
    """Train a small convolutional network on the bundled digits and write a summary page."""
    from paceline.cli.train import start
    from paceline.train.directory import next_directory

    start("lenet5", {"data": "digits", "epochs": 20, "batch": 32}, out=out or next_directory("demo"), json=json)
