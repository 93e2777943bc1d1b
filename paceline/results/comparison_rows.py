"""Rows that stand beside records: what was predicted, published, paid or found; also as CSV files."""

from __future__ import annotations

import csv
import dataclasses
import math
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline.errors import RecordError


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

    label: str
    value: float
    unit: str = ""
    source: str = ""
    metric: str = ""
    """The column of the results it can be compared with, if there is one."""
    where: dict[str, Any] = field(default_factory=dict)
    """The settings it is for."""

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
    fields = {f.name: f for f in dataclasses.fields(kind)}
    hints = typing.get_type_hints(kind)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            needed = [n for n, f in fields.items() if f.default is dataclasses.MISSING]
            if missing := [name for name in needed if name not in (reader.fieldnames or ())]:
                raise RecordError(f"{path.name} has no column {missing[0]!r}")
            return [_row(kind, hints, given, f"{path.name}, line {reader.line_num}") for given in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise RecordError(f"{path.name} cannot be read: {error}") from error


def _row(kind: type[Row], hints: dict[str, Any], given: dict[str, str], where: str) -> Row:
    values: dict[str, Any] = {}
    for name, hint in hints.items():
        text = (given.get(name) or "").strip()
        if not text:
            continue
        try:
            values[name] = float(text) if hint is float else text
        except ValueError:
            raise RecordError(f"{where}: {name} should be a number, not {text!r:.60}") from None
    try:
        return kind(**values)
    except TypeError:
        raise RecordError(f"{where} is not whole") from None


def read_table(path: Path) -> ExtraTable:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            header, *rows = [tuple(row) for row in csv.reader(file) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise RecordError(f"{path.name} cannot be read: {error}") from error
    except ValueError:
        raise RecordError(f"{path.name} is empty: its first line should name the columns") from None
    if uneven := next((row for row in rows if len(row) != len(header)), None):
        raise RecordError(f"{path.name}: {','.join(uneven)!r:.60} should have {len(header)} cells, as the first line")
    return ExtraTable(path.name.removesuffix(TABLE).replace("-", " "), header, tuple(rows))
