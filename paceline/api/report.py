"""`paceline.report`: one page about everything that is saved in directories."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from paceline.api.settings import as_optional_path, as_path, check_number


def report(
    paths: str | Path | Iterable[str | Path],
    out: str | Path = "report.html",
    *,
    title: str | None = None,
    figures: str | Path | None = None,
    price: float | None = None,
) -> Path:
    """Write one self-contained page about all records saved under `paths`, and return its path.

    `paths` are directories or files of runs, measurements, plans, simulations, experiments and whatever else Paceline
    saves. `out` is the page, or a directory for report.html. `figures` is a directory for the figures as PNG and SVG.
    `price` of a machine per hour adds what the runs cost.

    >>> run = paceline.train("mlp", data="digits", epochs=1, out="runs/reported")
    >>> paceline.report("runs/reported", "page.html").stat().st_size > 10_000
    True
    """
    from paceline.reporting.page import report as write_page

    check_number(price, "price")
    places = list(paths) if isinstance(paths, Iterable) and not isinstance(paths, str) else [paths]
    return write_page(
        [as_path(place, "paths") for place in places], as_path(out, "out"), title=title,
        figures=as_optional_path(figures, "figures"), price=price,
    ).path  # fmt: skip
