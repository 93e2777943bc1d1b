"""The page: one self-contained HTML file with all sections, figures and data. All text is escaped."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from paceline.errors import InputError, OutputError
from paceline.formatting import UNKNOWN, count, glued, number
from paceline.record import write_atomically
from paceline.reporting.answer import Answer, answer_of, title_of
from paceline.reporting.colours import DARK, LIGHT, PARTS, style_of_colours
from paceline.reporting.figure import Cell, Figure, Picture, Section, Table, TableBlock, value_of
from paceline.reporting.paper_figures import make_directory, write_figures
from paceline.reporting.sections import sections_of
from paceline.results.records import Records, Skipped, find_records
from paceline.results.run_result import run_results
from paceline.training.conditions import own_version
from paceline.training.run import Run

SCRIPTS = ("basis.js", "lines.js", "bars.js", "timeline.js", "tables.js", "page.js")
ROWS_AT_ONCE = 200  # of a figure's table; the CSV has all


@dataclass(frozen=True, eq=False)
class Page:
    title: str
    answer: Answer
    hero: Figure | None  # the picture below the answer
    sections: tuple[Section, ...]
    skipped: tuple[Skipped, ...]

    @property
    def figures(self) -> list[Figure]:
        rest = [block for section in self.sections for block in section.blocks if isinstance(block, Figure)]
        return [*([self.hero] if self.hero else []), *rest]


@dataclass(frozen=True)
class Written:
    """The path of a report, and what it contains."""

    path: Path
    size_bytes: int
    counts: dict[str, int]
    """Number of records of each kind."""
    skipped: tuple[Skipped, ...]
    figures: tuple[Path, ...] = ()


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
    if price is not None and not price >= 0:
        raise InputError(f"price={price} should be a number of at least 0: the price of a machine per hour")
    path = Path(out) / "report.html" if Path(out).is_dir() else Path(out)
    if path.is_dir():
        raise OutputError(f"`out={str(path)!r}` is a directory: name a file")
    records = find_records(paths)
    records.title = title or records.title
    records.price = price
    return write_records(records, path, figures=None if figures is None else Path(figures))


def write_records(records: Records, path: Path, *, figures: Path | None = None) -> Written:
    """Writes the page of loaded records, and its figures as files if `figures` is given."""
    page = page_of(records)
    if figures is not None:
        make_directory(figures)  # before the page is written: nothing is left behind if it cannot be made
    write_atomically(path, render(page))
    drawn = write_figures(page.figures, figures) if figures is not None else []
    return Written(path, path.stat().st_size, records.counts, tuple(records.skipped), tuple(drawn))


def write_summary(run: Run, directory: Path) -> Path:
    """Writes `summary.html` into the run's directory, with what was measured there, and returns its path."""
    records = Records()
    with suppress(InputError):  # no readable measurement
        records.measurements = find_records(sorted(directory.glob("measure*"))).measurements
    name = directory.resolve().name
    records.add(name, run)
    records.directories[name] = directory
    return write_records(records, directory / "summary.html").path


def page_of(records: Records) -> Page:
    runs = run_results(records)
    answer, sections = answer_of(records, runs), sections_of(records, runs)
    figures = {b.id: b for section in sections for b in section.blocks if isinstance(b, Figure)}
    hero = next((figures[name] for name in (*answer.pictures, *figures) if name in figures), None)
    below = _without(hero, {answer.sentence, *answer.summary}, sections)
    return Page(title_of(records, runs), answer, hero, tuple(below), tuple(records.skipped))


def _without(hero: Figure | None, said: set[str], sections: list[Section]) -> list[Section]:
    """Removes what the first screen and the summary already show."""
    found = []
    for section in sections:
        blocks = tuple(block for block in section.blocks if block is not hero)
        sentences = tuple(sentence for sentence in section.sentences if sentence not in said)
        if blocks or ((sentences or section.points) and not section.blocks):
            found.append(replace(section, sentences=sentences, blocks=blocks))
    return found


def render(page: Page) -> str:
    assets = files("paceline.reporting").joinpath("assets")
    scripts = {
        "library": assets.joinpath("echarts", "echarts.min.js").read_text(encoding="utf-8"),
        "own": "\n".join(assets.joinpath(name).read_text(encoding="utf-8") for name in SCRIPTS),
    }
    # With these hashes the browser runs our scripts and no others.
    digests = [hashlib.sha256(text.encode()).digest() for text in scripts.values()]
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["glued"] = glued
    template = environment.from_string(assets.joinpath("page.html").read_text(encoding="utf-8"))
    style = style_of_colours() + assets.joinpath("page.css").read_text(encoding="utf-8")
    return template.render(
        page=page,
        style=Markup(style),
        scripts={name: Markup(f"<script>{text}</script>") for name, text in scripts.items()},
        hashes=" ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests),
        data=Markup(_embedded(_data(page))),
        is_figure=lambda block: isinstance(block, Figure),
        is_picture=lambda block: isinstance(block, Picture),
        cell=cell_text,
        value_of=value_of,
        count=count,
        rows_at_once=ROWS_AT_ONCE,
        version=own_version(),
    ).lstrip()


def cell_text(cell: Cell, whole: bool = False, factor: float = 1.0) -> str:
    """The text of a cell; `whole` and `factor` are those of its column."""
    if cell is None:
        return UNKNOWN
    if isinstance(cell, str):
        return cell
    return f"{cell:,.0f}" if whole and factor == 1 and abs(cell) < 1e15 else number(cell * factor)


def _data(page: Page) -> dict[str, Any]:
    """The data of the charts. A table that several figures share is included once."""
    tables: dict[int, tuple[int, Table]] = {}

    def place(given: Table) -> int:
        return tables.setdefault(id(given), (len(tables), given))[0]

    return {
        "figures": {
            figure.id: {
                "kind": figure.kind,
                "title": figure.title,
                "views": [{"name": v.name, "table": place(v.table), "options": v.options} for v in figure.views],
            }
            for figure in page.figures
        },
        "listings": {b.id: place(b.table) for s in page.sections for b in s.blocks if isinstance(b, TableBlock)},
        "tables": [_columns(given) for _, given in tables.values()],
        "colours": {"light": LIGHT, "dark": DARK},
        "parts": PARTS,
        "rows_at_once": ROWS_AT_ONCE,
    }


def _columns(given: Table) -> dict[str, Any]:
    """By column. Each label is stored once and referred to by its index."""
    columns = []
    for place, column in enumerate(given.columns):
        values = [row[place] for row in given.rows]
        found: dict[str, Any] = {"name": column.name, "unit": column.unit}
        if any(isinstance(value, str) for value in values):
            said = ["" if value is None else cell_text(value) for value in values]
            words = {word: at for at, word in enumerate(dict.fromkeys(said))}
            found |= {"words": list(words), "at": [words[word] for word in said]}
        else:
            found["values"] = [float(f"{value:.9g}") if isinstance(value, float) else value for value in values]
        columns.append(found)
    return {"columns": columns, "rows": len(given.rows)}


def _embedded(value: Any) -> str:
    """JSON that cannot close the HTML element that contains it."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
