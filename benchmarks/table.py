"""Prints tables and lines, of one width whether a person or a file reads them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table

_console = Console(width=160, highlight=False, markup=False)


def show(text: str) -> None:
    _console.print(text)


def show_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    _console.print(table)


def verdict(ratio: float, bar: float) -> str:
    """Whether a ratio reaches its bar."""
    return "PASS" if ratio >= bar else f"short by {100 * (1 - ratio / bar):.0f} %"
