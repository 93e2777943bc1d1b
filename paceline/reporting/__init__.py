"""Reports: pages, figures and tables made from records."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.errors import InputError, OutputError

if TYPE_CHECKING:
    from paceline.reporting.page import Written


def report(
    paths: Iterable[str | Path],
    out: str | Path = "report.html",
    *,
    title: str | None = None,
    figures: str | Path | None = None,
    price: float | None = None,
) -> Written:
    """Writes one self-contained page about everything that is saved under `paths`, directories or files.

    `figures` is a directory for the figures as PNG and SVG. `price` is that of a machine per hour.
    """
    from paceline.reporting.page import write_records
    from paceline.results.records import find_records

    if price is not None and not price >= 0:
        raise InputError(f"price={price} should be a number of at least 0: the price of a machine per hour")
    path = Path(out) / "report.html" if Path(out).is_dir() else Path(out)
    if path.is_dir():
        raise OutputError(f"`out={str(path)!r}` is a directory: name a file")
    records = find_records(paths)
    records.title = title or records.title
    records.price = price
    return write_records(records, path, figures=None if figures is None else Path(figures))
