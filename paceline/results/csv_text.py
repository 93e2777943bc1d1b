"""Tables as comma-separated text: non-finite numbers are left empty, as spreadsheets and pandas expect."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from paceline.errors import RecordError
from paceline.formatting import as_number


def csv_text(header: list[str], rows: Iterable[Iterable[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return text.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, str):
        return " ".join(value.split())
    return "" if value is None or (isinstance(value, float) and math.isnan(value)) else value


def read_cells(path: Path) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            header, *rows = [tuple(row) for row in csv.reader(file) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise RecordError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    except ValueError:
        raise RecordError(f"{path} is empty: its first line should name the columns") from None
    if uneven := next((row for row in rows if len(row) != len(header)), None):
        raise RecordError(f"{path}: {','.join(uneven)!r:.60} should have {len(header)} cells, as the first line")
    return header, rows


def read_csv(path: Path) -> list[dict[str, Any]]:
    """The rows of a file written by `csv_text`, with numbers, booleans, and None for empty cells."""
    header, rows = read_cells(path)
    return [dict(zip(header, map(_value, row), strict=True)) for row in rows]


def _value(text: str) -> Any:
    return {"True": True, "False": False}.get(text, as_number(text)) if text else None
