"""Writes a page, and its figures for a paper."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from paceline.record import write_atomically
from paceline.reporting.page import page_of, render
from paceline.results.records import Records, Skipped


@dataclass(frozen=True)
class Written:
    """What a report was made of, and where it is."""

    path: Path
    size_bytes: int
    counts: dict[str, int]
    """How many of what are in it."""
    skipped: tuple[Skipped, ...]
    figures: tuple[Path, ...] = ()


def write_records(records: Records, path: Path, *, figures: Path | None = None) -> Written:
    """The page of records that are at hand already."""
    page = page_of(records)
    write_atomically(path, render(page))
    drawn: list[Path] = []
    if figures is not None:
        from paceline.reporting.paper_figures import write_figures

        drawn = write_figures(page.figures, figures)
    return Written(path, path.stat().st_size, records.counts, tuple(records.skipped), tuple(drawn))
