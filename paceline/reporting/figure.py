"""The elements of a page: sections with sentences, tables, and figures.

A figure is a table and a description of how to draw it. The chart on the page, the CSV download, the data table and the
plots for a paper are all made from the same rows.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress, groupby
from typing import Any

from paceline.formatting import as_number, listed, number

Cell = str | int | float | None

SMALL = ((1e-3, 1e6, "µs"), (1.0, 1e3, "ms"))  # (seconds below, factor, unit)

ALIKE = 10  # columns whose largest values differ by less than this factor share a unit
FEW_ROWS = 12  # longer tables are folded


@dataclass(frozen=True)
class Column:
    name: str
    unit: str = ""
    """s, %, samples/s, …; shares are in percent. A column named `value` is titled by its unit alone."""

    @property
    def title(self) -> str:
        if self.name == "value" and self.unit:
            return self.unit
        return f"{self.name}, {self.unit}" if self.unit else self.name


@dataclass(frozen=True, eq=False)
class Table:
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def column(self, name: str) -> Column:
        return next(column for column in self.columns if column.name == name)

    def values(self, name: str) -> list[Any]:
        place = self.columns.index(self.column(name))
        return [row[place] for row in self.rows]

    @property
    def scales(self) -> list[tuple[float, str]]:
        """Factor and title of each column for display: seconds below one are shown in ms or µs.

        Columns of similar size, such as the ends of an interval, share a unit.
        """
        found, sizes = [], []
        for column, cells in zip(self.columns, self._known, strict=True):
            numbers = (abs(cell) for cell in cells if column.unit == "s" and isinstance(cell, int | float))
            sizes.append(max(numbers, default=0.0))
        for column, size in zip(self.columns, sizes, strict=True):
            least = min((other for other in sizes if other > size / ALIKE), default=1.0) if size else 1.0
            factor, unit = next(((f, u) for most, f, u in SMALL if least < most), (1.0, column.unit))
            found.append((factor, replace(column, unit=unit).title))
        return found

    @property
    def _known(self) -> list[list[Cell]]:
        """For each column, the cells that have a value."""
        return [[row[place] for row in self.rows if row[place] is not None] for place in range(len(self.columns))]

    @property
    def numeric(self) -> list[bool]:
        """Whether each column holds only numbers; numbers may be written as text."""
        return [bool(cells) and all(value_of(cell) is not None for cell in cells) for cells in self._known]

    @property
    def whole(self) -> list[bool]:
        """Whether each column holds only whole numbers."""
        return [all(isinstance(cell, str | None) or cell == int(cell) for cell in cells) for cells in self._known]


def table(columns: Sequence[str | Column], rows: Iterable[Sequence[Cell]]) -> Table:
    """Makes a table; non-finite numbers become empty cells."""
    named = tuple(Column(c) if isinstance(c, str) else c for c in columns)
    cells = ((None if isinstance(cell, float) and not math.isfinite(cell) else cell for cell in row) for row in rows)
    return Table(named, tuple(map(tuple, cells)))


def filled(given: Table) -> Table:
    """Without empty columns."""
    kept = [any(cell != "" for cell in cells) for cells in given._known]
    return Table(tuple(compress(given.columns, kept)), tuple(tuple(compress(row, kept)) for row in given.rows))


def value_of(cell: Cell) -> float | None:
    """The number in a cell, or None."""
    value = as_number(cell.replace(",", "")) if isinstance(cell, str) else cell
    return None if isinstance(value, str) else value


@dataclass(frozen=True, eq=False)
class View:
    """One way to draw a table. `options` name the columns to draw, depending on the kind of figure:

    lines      line, group (default: line): names; x, y: numbers; low, high: the ends of a whisker; ideal: a
               column for a dashed line; styles: [colour, dash] by group; points: not connected, on logarithmic axes
               if the values have a wide range
    stack      category: names; parts: a list of columns, stacked in a bar
    bars       category: names; values: a list of columns, side by side
    intervals  category; value, low, high: the prediction; other: the measurement
    timeline   row, what: names; start, end: seconds; note
    """

    name: str
    table: Table
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Figure:
    id: str
    title: str
    kind: str
    views: tuple[View, ...]  # if there are several, the reader chooses one by name
    says: str = ""  # alternative text; if empty, the first values are read out
    note: str = ""
    choice: str = "show"  # label of the menu of views
    wide: bool = False  # takes a whole row

    @property
    def words(self) -> str:
        return f"{self.title}. {self.says or _read_out(self.views[0])}"


def _read_out(view: View) -> str:
    """The last value of each line, or the values of the first bar."""
    data, options = view.table, view.options
    if "line" in options:
        lines = zip(data.values(options["line"]), data.values(options["y"]), strict=True)
        ends = {line: value for line, value in lines if value is not None}
        said = [f"{line} {number(value)}" for line, value in ends.items()]
        return f"{data.column(options['y']).title} at the last {options['x']}: {listed(said)}."
    parts = options.get("parts") or options["values"]
    known = {part: value for part in parts if (value := data.values(part)[0]) is not None}
    unit = data.column(parts[0]).unit
    said = [f"{part} {number(value)} {unit}".rstrip() for part, value in known.items()]
    return f"{data.values(options['category'])[0]}: {listed(said)}."


@dataclass(frozen=True, eq=False)
class TableBlock:
    """A table that is shown as such."""

    id: str
    title: str
    table: Table
    note: str = ""
    folded: bool = False
    of_runs: bool = False
    """Whether its rows are the runs: filtering them also filters the lines of the figures."""

    @property
    def is_folded(self) -> bool:
        return self.folded or len(self.table.rows) > FEW_ROWS


@dataclass(frozen=True, eq=False)
class Picture:
    """An existing image."""

    id: str
    title: str
    png: bytes
    words: str  # alternative text

    @property
    def address(self) -> str:
        """The image as a data URL."""
        return f"data:image/png;base64,{base64.b64encode(self.png).decode()}"


Block = Figure | TableBlock | Picture


@dataclass(frozen=True, eq=False)
class Section:
    id: str
    title: str
    sentences: tuple[str, ...] = ()
    points: tuple[str, ...] = ()  # shown as a list
    blocks: tuple[Block, ...] = ()

    @property
    def rows(self) -> list[list[Block]]:
        """The blocks, with consecutive narrow figures in one row."""
        found: list[list[Block]] = []
        for narrow, some in groupby(self.blocks, lambda block: isinstance(block, Figure) and not block.wide):
            blocks = list(some)
            found += [blocks] if narrow else [[block] for block in blocks]
        return found


def section(
    id: str,
    title: str,
    sentences: Iterable[str] = (),
    points: Iterable[str] = (),
    blocks: Iterable[Block | None] = (),
) -> Section | None:
    """A section without empty parts; None if it would have only sentences."""
    shown = tuple(block for block in blocks if block is not None)
    found = Section(id, title, tuple(filter(None, sentences)), tuple(points), shown)
    return found if found.blocks or found.points else None


def figure(id: str, title: str, kind: str, views: Iterable[View], says: str = "", **how: Any) -> Figure | None:
    """A figure; None without views."""
    shown = tuple(views)
    return Figure(id, title, kind, shown, says, **how) if shown else None


def listing(
    id: str, title: str, columns: Sequence[str | Column], rows: Iterable[Sequence[Cell]], **how: Any
) -> TableBlock | None:
    """A table block; None without rows."""
    data = table(columns, rows)
    return TableBlock(id, title, data, **how) if data.rows else None
