"""Turns records into something to look at."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paceline.reporting.writing import Written
    from paceline.results.comparison_rows import CostRow, PredictionRow, PublishedRow


def report(
    paths: Iterable[str | Path],
    out: str | Path = "report.html",
    *,
    title: str | None = None,
    figures: str | Path | None = None,
    predictions: Iterable[PredictionRow] = (),
    published: Iterable[PublishedRow] = (),
    costs: Iterable[CostRow] = (),
    price: float | None = None,
) -> Written:
    """Writes one self-contained page about everything that is saved under `paths`, directories or files.

    `figures` is a directory for the figures as PNG and SVG. Rows to be shown beside the records are given here, or lie
    beside them as predictions.csv, published.csv and costs.csv. `price` is that of a machine an hour.
    """
    from paceline.reporting.writing import write_report

    return write_report(
        paths, out, title=title, figures=figures, predictions=predictions, published=published, costs=costs, price=price
    )
