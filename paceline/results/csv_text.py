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
    return "" if isinstance(value, float) and math.isnan(value) else value


def read_csv(path: Path) -> list[dict[str, Any]]:
    """The rows of a file that `csv_text` made: numbers and truth values as such, None for empty cells."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            return [{key: _value(text) for key, text in row.items() if key} for row in csv.DictReader(file)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise RecordError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error


def _value(text: str | None) -> Any:
    return {"True": True, "False": False}.get(text, as_number(text)) if text else None
