"""Rows of predicted and published values, costs and findings, from records or CSV files."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from paceline.errors import InputError, RecordError
from paceline.results.csv_text import read_cells
from paceline.settings import check, setting


@dataclass(frozen=True)
class PredictionRow:
    """A predicted value with its interval, and the measured value if there is one."""

    name: str
    predicted: float
    low: float = math.nan
    high: float = math.nan
    measured: float = math.nan
    unit: str = "s"

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1.0 if self.measured else math.nan

    @property
    def inside(self) -> bool | None:
        """Whether the interval covers the measured value; None if either is missing."""
        if not all(math.isfinite(value) for value in (self.low, self.high, self.measured)):
            return None
        return self.low <= self.measured <= self.high


@dataclass(frozen=True)
class PublishedNumber:
    """A published number that an experiment states for comparison."""

    label: str = setting("")
    value: float = setting(0.0)
    unit: str = setting("")
    source: str = setting("")
    metric: str = setting("")  # column of the results to compare it with, if any
    where: dict[str, Any] = setting({})  # settings that it applies to

    def __post_init__(self) -> None:
        check(self, InputError)

    def matches(self, row: Mapping[str, Any]) -> bool:
        return all(row.get(key) == value for key, value in self.where.items())


@dataclass(frozen=True)
class PublishedRow:
    name: str
    published: float
    ours: float = math.nan
    unit: str = ""
    source: str = ""
    along: str = ""  # axis that it is drawn along, such as `threads`; empty: a bar
    at: float = math.nan  # position on that axis
    line: str = ""  # names of the published and of our line
    our_line: str = "ours"

    @property
    def ratio(self) -> float:
        return self.ours / self.published if self.published else math.nan


@dataclass(frozen=True)
class CostRow:
    name: str
    amount: float
    currency: str = "US$"
    what: str = ""  # what the amount pays for: a run, an hour, a year


@dataclass(frozen=True)
class Finding:
    """A sentence that belongs on the first screen, and the figure that shows it."""

    sentence: str
    figure: str = ""


@dataclass(frozen=True)
class ExtraTable:
    """A table from a file TITLE.table.csv, shown as it is."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


Row = PredictionRow | PublishedRow | CostRow | Finding

FILES: dict[str, type[Row]] = {
    "predictions.csv": PredictionRow, "published.csv": PublishedRow, "costs.csv": CostRow, "findings.csv": Finding,
}  # fmt: skip
TABLE = ".table.csv"


def read_rows(path: Path, kind: type[Row]) -> list[Row]:
    """The rows of a CSV file with the names of the fields as header; other columns are ignored."""
    header, rows = read_cells(path)
    needed = [f.name for f in dataclasses.fields(kind) if f.default is dataclasses.MISSING]
    if missing := [name for name in needed if name not in header]:
        raise RecordError(f"{path} has no column {missing[0]!r}")
    found = []
    for line, row in enumerate(rows, 2):
        given = {key: text.strip() for key, text in zip(header, row, strict=True) if text.strip()}
        try:
            found.append(msgspec.convert(given, kind, strict=False))
        except msgspec.ValidationError as error:
            name = str(error).partition("$.")[2].rstrip("`")  # if a value is invalid
            said = f": {name} should be a number, not {given[name]!r:.60}" if name else " is incomplete"
            raise RecordError(f"{path}, line {line}{said}") from None
    return found


def read_table(path: Path) -> ExtraTable:
    header, rows = read_cells(path)
    return ExtraTable(path.name.removesuffix(TABLE).replace("-", " "), header, tuple(rows))
