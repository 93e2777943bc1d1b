"""What a page is made of: sections with sentences, tables, and figures that are tables with a way to draw them.

A figure holds no drawing. The page's script, the CSV that is downloaded, the table for those who cannot see it
and the plots for a paper are all made from the same rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from paceline.formatting import listed, number

Cell = str | int | float | None

SMALL = ((1e-3, 1e6, "µs"), (1.0, 1e3, "ms"))
"""Up to how many seconds, by what they are multiplied, and their unit then."""
KINDS = ("lines", "stack", "bars", "intervals", "timeline")


@dataclass(frozen=True)
class Column:
    name: str
    unit: str = ""
    """s, %, samples/s, …; a share is in percent. Where it says what a `value` is, it stands alone."""

    @property
    def title(self) -> str:
        if self.name == "value" and self.unit:
            return self.unit
        return f"{self.name}, {self.unit}" if self.unit else self.name


@dataclass(frozen=True, eq=False)
class Table:
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def values(self, name: str) -> list[Any]:
        place = [column.name for column in self.columns].index(name)
        return [row[place] for row in self.rows]

    @property
    def scales(self) -> list[tuple[float, str]]:
        """By what each column is multiplied for reading, and its title then: seconds below one are ms or µs."""
        found = []
        for place, column in enumerate(self.columns):
            numbers = [abs(cell) for row in self.rows if isinstance(cell := row[place], int | float)]
            largest = max(numbers, default=1.0)
            factor, unit = next(((f, u) for least, f, u in SMALL if largest < least), (1.0, column.unit))
            scaled = column.unit == "s" and largest > 0
            found.append((factor, replace(column, unit=unit).title) if scaled else (1.0, column.title))
        return found

    @property
    def numeric(self) -> list[bool]:
        """Which columns hold numbers, also as text with the digits that they were given, and nothing else."""
        columns = [[row[place] for row in self.rows] for place in range(len(self.columns))]
        told = [[cell for cell in cells if cell is not None] for cells in columns]
        return [bool(cells) and all(value_of(cell) is not None for cell in cells) for cells in told]

    @property
    def whole(self) -> list[bool]:
        """Which of them hold whole numbers only."""
        columns = [[row[place] for row in self.rows] for place in range(len(self.columns))]
        return [all(isinstance(cell, str | None) or cell == int(cell) for cell in cells) for cells in columns]


def table(columns: Sequence[str | Column], rows: Iterable[Sequence[Cell]]) -> Table:
    """Rows as they are given; what is no finite number becomes nothing."""
    named = tuple(Column(c) if isinstance(c, str) else c for c in columns)
    return Table(named, tuple(tuple(_finite(cell) for cell in row) for row in rows))


def filled(given: Table) -> Table:
    """Without the columns that have no value."""
    kept = [place for place in range(len(given.columns)) if any(row[place] not in (None, "") for row in given.rows)]
    return Table(
        tuple(given.columns[place] for place in kept), tuple(tuple(row[place] for place in kept) for row in given.rows)
    )


def value_of(cell: Cell) -> float | None:
    """The number that a cell holds, if it does."""
    if not isinstance(cell, str):
        return cell
    try:
        value = float(cell.replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _finite(cell: Cell) -> Cell:
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell


@dataclass(frozen=True, eq=False)
class View:
    """One way to look at a table. Which columns are drawn, and how, is said in `options`, by the figure's kind:

    lines      line, group: names; x, y: numbers; low, high: the ends of a whisker; ideal: a column for a dashed line;
               styles: [colour, dash] by group; points: each stands for itself, on logarithmic axes where they reach far
    stack      category: names; parts: a list of columns, one beside the other in a bar
    bars       category: names; values: a list of columns, side by side
    intervals  category; value, low, high: what was expected; other: what came
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
    views: tuple[View, ...]
    """Where there are several, the reader chooses one by its name."""
    says: str = ""
    """What is to be seen, in a sentence for those who cannot see it; without one, the first values are read out."""
    note: str = ""
    choice: str = "show"
    """What the views differ in."""
    wide: bool = False
    """Takes a row of its own."""

    @property
    def words(self) -> str:
        """For those who cannot see it."""
        return f"{self.title}. {self.says or _read_out(self.views[0])}"


def _read_out(view: View) -> str:
    """The last value of each line, or the values of the first bar."""
    names = [column.name for column in view.table.columns]
    if "line" in view.options:
        y = view.options["y"]
        lines = zip(view.table.values(view.options["line"]), view.table.values(y), strict=True)
        ends = {line: value for line, value in lines if value is not None}
        said = [f"{line} {number(value)}" for line, value in ends.items()]
        return f"{view.table.columns[names.index(y)].title} at the last {view.options['x']}: {listed(said)}."
    parts = view.options.get("parts") or view.options["values"]
    first, *_ = view.table.rows
    values = {part: first[names.index(part)] for part in parts}
    unit = view.table.columns[names.index(parts[0])].unit
    known = {part: value for part, value in values.items() if isinstance(value, int | float)}
    said = [f"{part} {number(value)} {unit}".rstrip() for part, value in known.items()]
    return f"{first[names.index(view.options['category'])]}: {listed(said)}."


@dataclass(frozen=True, eq=False)
class TableBlock:
    """A table to be read as it is."""

    id: str
    title: str
    table: Table
    note: str = ""
    folded: bool = False
    of_runs: bool = False
    """Its rows are the runs: filtering them filters the lines of the figures, which have the same names."""


@dataclass(frozen=True, eq=False)
class Section:
    id: str
    title: str
    sentences: tuple[str, ...] = ()
    points: tuple[str, ...] = ()
    """Sentences that are read as a list."""
    blocks: tuple[Figure | TableBlock, ...] = ()

    @property
    def rows(self) -> list[list[Figure | TableBlock]]:
        """The blocks, with narrow figures that follow each other in one row."""
        found: list[list[Figure | TableBlock]] = []
        for block in self.blocks:
            if found and _is_narrow(block) and _is_narrow(found[-1][0]):
                found[-1].append(block)
            else:
                found.append([block])
        return found


def _is_narrow(block: Figure | TableBlock) -> bool:
    return isinstance(block, Figure) and not block.wide
