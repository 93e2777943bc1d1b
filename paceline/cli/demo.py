"""`paceline demo`: a first run on bundled data, with a page to look at."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from paceline.cli.console import JsonOption, console_for

EXAMPLE = "Example: paceline demo"


def demo(
    out: Annotated[Path | None, typer.Option(help="Directory of the run; runs/demo-N if not given.")] = None,
    json: JsonOption = None,
) -> None:
    """Train a small convolutional network on the bundled digits and write a summary page."""
    from paceline.cli.train import start

    settings = {"data": "digits", "epochs": 20, "batch": 32}
    page = start("lenet5", settings, name="demo", out=out, json=json)
    console_for(json).print(f"Open {page.resolve()} in a browser.", markup=False)
