"""What all verbs share: where text goes, how a record is handed over as JSON, how errors end the program."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from paceline.record import write_atomically

JsonOption = Annotated[
    str | None, typer.Option("--json", metavar="FILE", help="Write the result as JSON; - for standard output.")
]


def console_for(json_file: str | None) -> Console:
    """Text for people goes to standard output, unless JSON goes there."""
    return Console(stderr=json_file == "-", highlight=False, soft_wrap=True)


def hand_over(value: Any, json_file: str | None) -> None:
    """Writes a JSON value where it was asked for."""
    if json_file is None:
        return
    text = json.dumps(value, indent=1, allow_nan=False) + "\n"
    if json_file == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
    else:
        write_atomically(Path(json_file), text)


def complain(message: str) -> None:
    """One line on standard error."""
    print("paceline: " + " ".join(message.split()), file=sys.stderr)
