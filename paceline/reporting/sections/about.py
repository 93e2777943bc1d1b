"""The notes of an experiment's author, and extra tables that are shown as they are."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.formatting import as_number, number
from paceline.reporting.figure import Cell, Section, Table, TableBlock, table
from paceline.results.comparison_rows import ExtraTable

MANY = 12


def about(notes: Sequence[str]) -> Section | None:
    return Section("about", "About this experiment", points=tuple(notes)) if notes else None


def extra_tables(tables: Sequence[ExtraTable]) -> Section | None:
    if not tables:
        return None
    blocks = tuple(
        TableBlock(f"extra-{place}", given.title, _table(given), folded=len(given.rows) > MANY)
        for place, given in enumerate(tables)
    )
    return Section("tables", "Further tables", blocks=blocks)


def _table(given: ExtraTable) -> Table:
    columns = [_column([row[place] for row in given.rows]) for place in range(len(given.header))]
    return table(given.header, list(zip(*columns, strict=True)))


def _column(texts: list[str]) -> list[Cell]:
    """Numbers, unless that would show fewer digits than were given."""
    cells: list[Cell] = [as_number(text) if text else None for text in texts]
    known = [cell for cell in cells if cell is not None]
    if all(not isinstance(cell, str) and float(number(cell).replace(",", "")) == cell for cell in known):
        return cells
    return [text or None for text in texts]
