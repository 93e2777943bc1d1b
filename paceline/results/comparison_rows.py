"""Rows that stand beside records: what was predicted, published, paid or found; also as CSV files."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.errors import InputError, RecordError
from paceline.results.csv_text import read_cells
from paceline.settings import check, setting


@dataclass(frozen=True)
class PredictionRow:
    """What was expected, the interval it was expected in, and what came; a plan has only the former."""

    name: str
    predicted: float
    low: float = math.nan
    high: float = math.nan
    measured: float = math.nan
    unit: str = "s"

    @property
    def error(self) -> float:
        """What was predicted, over what came, minus one."""
        return self.predicted / self.measured - 1.0 if self.measured else math.nan

    @property
    def inside(self) -> bool | None:
        """Whether what came lies in the interval; None where there is no interval, or nothing came."""
        if not all(math.isfinite(value) for value in (self.low, self.high, self.measured)):
            return None
        return self.low <= self.measured <= self.high


@dataclass(frozen=True)
class PublishedNumber:
    """A number that an experiment states for comparison, and the settings it is for."""

    label: str = setting("")
    value: float = setting(0.0)
    unit: str = setting("")
    source: str = setting("")
    metric: str = setting("")
    """The column of the results it can be compared with, if there is one."""
    where: dict[str, Any] = setting({})
    """The settings it is for."""

    def __post_init__(self) -> None:
        check(self, InputError)

    def matches(self, row: Mapping[str, Any]) -> bool:
        return all(row.get(key) == value for key, value in self.where.items())


@dataclass(frozen=True)
class PublishedRow:
    """A figure that someone published, and ours."""

    name: str
    published: float
    ours: float = math.nan
    unit: str = ""
    source: str = ""
    along: str = ""
    """What such figures are drawn against, as `threads`; nothing: a bar each."""
    at: float = math.nan
    """Where on that axis it lies."""
    line: str = ""
    """Which of the published lines it belongs to, and which of ours."""
    our_line: str = "ours"

    @property
    def ratio(self) -> float:
        return self.ours / self.published if self.published else math.nan


@dataclass(frozen=True)
class CostRow:
    name: str
    amount: float
    currency: str = "US$"
    what: str = ""
    """What is paid for it: a run, an hour, a year."""


@dataclass(frozen=True)
class Finding:
    """A sentence that belongs on the first screen, and the figure that shows it."""

    sentence: str
    figure: str = ""


@dataclass(frozen=True)
class ExtraTable:
    """A table to be read as it is, from a file whose name ends in .table.csv and begins with its title."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


Row = PredictionRow | PublishedRow | CostRow | Finding

FILES: dict[str, type[Row]] = {
    "predictions.csv": PredictionRow, "published.csv": PublishedRow, "costs.csv": CostRow, "findings.csv": Finding,
}  # fmt: skip
TABLE = ".table.csv"


def read_rows(path: Path, kind: type[Row]) -> list[Row]:
    """The rows of a CSV file whose header has the names of the fields; other columns are left alone."""
    header, rows = read_cells(path)
    needed = [f.name for f in dataclasses.fields(kind) if f.default is dataclasses.MISSING]
    if missing := [name for name in needed if name not in header]:
        raise RecordError(f"{path} has no column {missing[0]!r}")
    return [_row(kind, dict(zip(header, row, strict=True)), f"{path}, line {line}") for line, row in enumerate(rows, 2)]


def _row(kind: type[Row], given: dict[str, str], where: str) -> Row:
    values: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        text = given.get(field.name, "").strip()
        try:
            values |= {field.name: float(text) if field.type == "float" else text} if text else {}
        except ValueError:
            raise RecordError(f"{where}: {field.name} should be a number, not {text!r:.60}") from None
    try:
        return kind(**values)
    except TypeError:
        raise RecordError(f"{where} is not whole") from None


def read_table(path: Path) -> ExtraTable:
    header, rows = read_cells(path)
    return ExtraTable(path.name.removesuffix(TABLE).replace("-", " "), header, tuple(rows))
