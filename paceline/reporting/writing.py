"""Puts a report together: reads, works out, renders, writes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from paceline.errors import InputError, OutputError
from paceline.record import write_atomically
from paceline.reporting.page import page_of, render
from paceline.results.comparison_rows import CostRow, PredictionRow, PublishedRow
from paceline.results.records import Records, Skipped, find_records


@dataclass(frozen=True)
class Written:
    """What a report was made of, and where it is."""

    path: Path
    size_bytes: int
    counts: dict[str, int]
    """How many of what are in it."""
    skipped: tuple[Skipped, ...]
    figures: tuple[Path, ...] = ()


def write_report(
    paths: Iterable[str | Path],
    out: str | Path,
    *,
    title: str | None = None,
    figures: str | Path | None = None,
    predictions: Iterable[PredictionRow] = (),
    published: Iterable[PublishedRow] = (),
    costs: Iterable[CostRow] = (),
    price: float | None = None,
) -> Written:
    if price is not None and not price >= 0:
        raise InputError(f"price={price} should be a number of at least 0: what a machine costs an hour")
    path = _file(Path(out))
    records = find_records(paths)
    records.add_rows([*predictions, *published, *costs])
    records.title = title or records.title
    records.price = price
    return write_records(records, path, figures=None if figures is None else Path(figures))


def write_records(records: Records, path: Path, *, figures: Path | None = None) -> Written:
    """The page of records that are at hand already."""
    page = page_of(records)
    write_atomically(path, render(page))
    drawn: list[Path] = []
    if figures is not None:
        from paceline.reporting.paper_figures import write_figures

        drawn = write_figures(page, figures)
    counts = {
        "runs": len(records.runs), "plans": len(records.plans),
        "simulations": len(records.simulations) + len(records.clusters), "measurements": len(records.measurements),
        "link measurements": len(records.links), "feedings": len(records.feedings),
        "evaluations": len(records.evaluations),
        "predictions": len(records.all_predictions), "published figures": len(records.published),
        "costs": len(records.costs),
    }  # fmt: skip
    there = {what: many for what, many in counts.items() if many}
    return Written(path, path.stat().st_size, there, tuple(records.skipped), tuple(drawn))


def _file(out: Path) -> Path:
    """Said before anything is read: a place that cannot be written."""
    path = out / "report.html" if out.is_dir() else out
    if path.is_dir():
        raise OutputError(f"`out={str(path)!r}` is a directory: name a file")
    return path
