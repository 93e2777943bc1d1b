"""A table as comma-separated text; what is not a number is left empty, as a spreadsheet expects."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable


def csv_text(header: list[str], rows: Iterable[Iterable[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return text.getvalue()


def _cell(value: object) -> object:
    return "" if isinstance(value, float) and math.isnan(value) else value
