"""The notes of an experiment's author, and extra tables that are shown as they are."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.reporting.figure import Section, Table, TableBlock, table
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
    """Cells as they were given: with as many digits."""
    return table(given.header, [[text or None for text in row] for row in given.rows])
