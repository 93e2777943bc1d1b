"""What its author wants the reader to know, and tables that were given to be read as they are."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.report.figure import Cell, Listing, Section, table
from paceline.report.given_rows import GivenTable
from paceline.report.words import as_number


def about(notes: Sequence[str]) -> Section | None:
    return Section("about", "About this study", tuple(notes[:1]), tuple(notes[1:])) if notes else None


def given_tables(tables: Sequence[GivenTable]) -> Section | None:
    if not tables:
        return None
    blocks = tuple(
        Listing(f"given-{place}", given.title, table(given.header, [tuple(map(_cell, row)) for row in given.rows]))
        for place, given in enumerate(tables)
    )
    return Section("tables", "Tables beside it", blocks=blocks)


def _cell(text: str) -> Cell:
    return as_number(text) if text else None
