"""Tables on the terminal, one look for all of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from rich.table import Table


def rows_table(rows: Iterable[Mapping[str, Any]], left: Collection[str] | None = None, *, wrap: bool = False) -> Table:
    """A row for each mapping; its keys are the headings. Columns that are not `left` are right-aligned.

    Without `left`, those are right-aligned that hold numbers. `wrap` breaks long cells into lines.
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
