"""What all verbs share: the console, JSON output, progress, warnings and errors."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from paceline.errors import OutputError
from paceline.output_file import is_stream, write_atomically

if TYPE_CHECKING:
    from paceline.api.listing import Listing

REPORT_EVERY_S = 10.0


def console_for(json_file: str | None) -> Console:
    """Text for people goes to standard output, unless JSON goes there."""
    stream = sys.stderr if json_file == "-" else sys.stdout
    wide = None if stream.isatty() else 120  # a file or a pipe has no width of its own
    return Console(file=stream, highlight=False, soft_wrap=True, emoji=False, width=wide)


def check_place(path: Path, option: str) -> None:
    """Reports before the work, not after it, that the file of an option cannot be written."""
    try:
        real = path if is_stream(path) else Path(os.path.realpath(path))
        if real.is_dir():
            raise OutputError(f"{option} {path} is a directory; name a file")
        if is_stream(real) or real.exists():
            if not os.access(real, os.W_OK):
                raise OutputError(f"{option} {path} cannot be written: it is write-protected")
            return
        near = next(p for p in real.parents if p.exists())
        tempfile.TemporaryFile(dir=near).close()  # also where the permissions would allow it, as in /proc
    except OSError as error:
        raise OutputError(f"{option} {path} cannot be written: {error.strerror}") from error


def _checked_json(json_file: str | None) -> str | None:
    if json_file is not None and json_file != "-":
        check_place(Path(json_file), "--json")
    return json_file


JsonOption = Annotated[
    str | None,
    typer.Option(
        "--json", metavar="FILE", help="Write the result as JSON; - for standard output.", callback=_checked_json,
        rich_help_panel="Output",
    ),
]  # fmt: skip
TrustOption = Annotated[
    bool, typer.Option("--trust", help="Run the user code that a saved run or plan names, wherever it is.")
]


def output_json(value: Any, json_file: str | None) -> None:
    """Writes a value as JSON to a file, or to standard output for `-`."""
    if json_file is None:
        return
    text = json.dumps(value, indent=1, allow_nan=False, default=str) + "\n"  # paths as text
    if json_file == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
    else:
        write_atomically(Path(json_file), text)


def output_listing(listing: Listing[Any], json_file: str | None) -> None:
    """Shows a listing as a table, and writes its records as JSON."""
    from paceline.cli.tables import rows_table
    from paceline.record import to_json

    console = console_for(json_file)
    if not console.is_terminal:
        console.width = 200  # a file has room for all columns
    console.print(rows_table(listing.rows, wrap=True), soft_wrap=False, markup=False)
    output_json([to_json(item) for item in listing], json_file)


@contextmanager
def progress_bar(console: Console, what: str) -> Iterator[Callable[[float], None]]:
    """A bar of the share that is done. Without a terminal, a line on standard error now and then: minutes without one
    look like a hang."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(what), BarColumn(bar_width=24), TimeRemainingColumn())
    said_s = monotonic()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=1.0)

        def advance(done: float) -> None:
            nonlocal said_s
            bar.update(task, completed=done)
            if not console.is_terminal and monotonic() - said_s > REPORT_EVERY_S:
                said_s = monotonic()
                print(f"{what}: {done:.0%}", file=sys.stderr, flush=True)

        yield advance


def warn_if_busy(busy: str) -> None:
    """One line on standard error where times are shown that other work has made longer."""
    if busy:
        print(f"warning: {busy}", file=sys.stderr)


def complain(message: str) -> None:
    """One line on standard error."""
    print("paceline: " + " ".join(message.split()), file=sys.stderr)
