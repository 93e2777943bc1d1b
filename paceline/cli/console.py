"""What all verbs share: the console, tables, JSON output, progress and download bars, warnings and errors."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Annotated, Any, Self

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table

from paceline.api.listing import Listing
from paceline.errors import OutputError
from paceline.formatting import percent
from paceline.output_directory import writable
from paceline.output_file import is_stream, write_atomically
from paceline.record import to_json

REPORT_EVERY_S = 10.0


def console_for(json_file: str | None) -> Console:
    """A console on standard output, or on standard error if JSON goes to standard output."""
    stream = sys.stderr if json_file == "-" else sys.stdout
    wide = None if stream.isatty() else 120  # a file or a pipe has no width of its own
    return Console(file=stream, highlight=False, soft_wrap=True, emoji=False, markup=False, width=wide)


def check_place(path: Path, option: str) -> None:
    """Raises an error before any work is done if the file of an option cannot be written."""
    with writable(f"{option} {path}"):
        real = path if is_stream(path) else Path(os.path.realpath(path))
        if real.is_dir():
            raise OutputError(f"{option} {path} is a directory; name a file")
        if is_stream(real) or real.exists():
            if not os.access(real, os.W_OK):
                raise OutputError(f"{option} {path} cannot be written: it is write-protected")
            return
        near = next(p for p in real.parents if p.exists())
        tempfile.TemporaryFile(dir=near).close()  # permissions alone do not tell, e.g. in /proc


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
    console = console_for(json_file)
    use_all_columns(console)
    console.print(rows_table(listing.rows, wrap=True), soft_wrap=False)
    output_json([to_json(item) for item in listing], json_file)


@contextmanager
def progress_bar(console: Console, what: str, busy: str = "") -> Iterator[Callable[[float], None]]:
    """A progress bar. Without a terminal, a line on standard error every 10 s, so that it does not look like a hang.

    A warning that the machine is `busy` is printed at the first step, so that errors are printed without it.
    """
    columns = (TextColumn(what), BarColumn(bar_width=24), TimeRemainingColumn())
    said_s = monotonic()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=1.0)

        def advance(done: float) -> None:
            nonlocal said_s, busy
            warn_if_busy(busy)
            busy = ""
            bar.update(task, completed=done)
            if not console.is_terminal and monotonic() - said_s > REPORT_EVERY_S:
                said_s = monotonic()
                print(f"{what}: {percent(done, 0)}", file=sys.stderr, flush=True)

        yield advance


def warn_if_busy(busy: str) -> None:
    """One line on standard error, printed with times that other work made longer."""
    if busy:
        print(f"warning: {busy}", file=sys.stderr)


def complain(message: str) -> None:
    """One line on standard error."""
    print("paceline: " + " ".join(message.split()), file=sys.stderr)


def rows_table(rows: Iterable[Mapping[str, Any]], left: Collection[str] | None = None, *, wrap: bool = False) -> Table:
    """A row for each mapping; its keys are the headings. Columns that are not `left` are right-aligned.

    Without `left`, columns of numbers are right-aligned. `wrap` breaks long cells into lines.
    """
    shown = list(rows)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in shown[0] if shown else ():
        numbers = all(isinstance(row[name], int | float | None) and not isinstance(row[name], bool) for row in shown)
        right = numbers if left is None else name not in left
        table.add_column(name, justify="right" if right else "left", no_wrap=not wrap, overflow="fold")
    for row in shown:
        table.add_row(*map(_cell, row.values()))
    return table


def use_all_columns(console: Console) -> None:
    """For tables with many columns: a file or a pipe has no limited width."""
    if not console.is_terminal:
        console.width = 240


def facts_table(facts: Mapping[str, str]) -> Table:
    """A row for each fact that has a value: its name and the value."""
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, value in facts.items():
        if value:
            table.add_row(name, value)
    return table


def _cell(value: Any) -> str:
    if value is None:
        return "--"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    return f"{value:,.6g}" if isinstance(value, float) else str(value)


class BarAfterDownloads:
    """A watcher with a progress bar, which starts after the downloads: a terminal shows one bar at a time."""

    def __init__(
        self, console: Console, *columns: ProgressColumn, progress: Callable[..., Progress] = Progress
    ) -> None:
        self.console = console
        self.bar = progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self.downloads = DownloadBar(console)

    def __enter__(self) -> Self:
        self.downloads.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.downloads.stop()
        self.bar.stop()

    def start_bar(self) -> None:
        self.downloads.stop()
        self.bar.start()


class DownloadBar(Progress):
    """Callable with (what, bytes so far, total bytes or None)."""

    def __init__(self, console: Console) -> None:
        super().__init__(
            TextColumn("{task.description}"), BarColumn(bar_width=24), DownloadColumn(), TransferSpeedColumn(),
            console=console, transient=True, disable=not console.is_terminal,
        )  # fmt: skip
        self.known: dict[str, TaskID] = {}

    def __call__(self, what: str, done_bytes: int, all_bytes: int | None) -> None:
        if what not in self.known:
            self.known[what] = self.add_task(what, total=all_bytes)
        self.update(self.known[what], completed=done_bytes, total=all_bytes)
