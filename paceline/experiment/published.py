"""Reads the published numbers that an experiment states, from its TOML file or a CSV file beside it."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

from paceline.errors import InputError, nearest
from paceline.experiment.keys import flattened
from paceline.results.comparison_rows import PublishedNumber

KEYS = ("label", "value", "unit", "source", "metric", "where")


def read_published(given: Any, folder: Path) -> tuple[PublishedNumber, ...]:
    """From a list of tables, or from a CSV file beside the experiment."""
    if isinstance(given, dict):
        given = given["file"] if set(given) == {"file"} else [given]
    if isinstance(given, str):
        given = _rows(folder / given)
    if not isinstance(given, list):
        raise InputError(f"published={given!r:.60} should be a list of tables, or the name of a CSV file")
    return tuple(_published(entry, number) for number, entry in enumerate(given, 1))


def _published(entry: Any, number: int) -> PublishedNumber:
    place = f"[[published]] {number}"
    if not isinstance(entry, dict):
        raise InputError(f"{place} is {entry!r:.60}; it should be a table with label, value, unit and source")
    for key in entry:
        if key not in KEYS:
            raise InputError(f"{place} has no key {key!r}: {nearest(key, KEYS)}")
    for key in ("label", "value"):
        if key not in entry:
            raise InputError(f"{place} has no {key}")
    value = entry["value"]
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InputError(f"{place}: value={value!r:.60} should be a number")
    texts = {key: entry.get(key, "") for key in ("label", "unit", "source", "metric")}
    for key, text in texts.items():
        if not isinstance(text, str):
            raise InputError(f"{place}: {key}={text!r:.60} should be text")
    where = entry.get("where", {})
    if not isinstance(where, dict):
        raise InputError(f"{place}: where={where!r:.60} should be a table of settings")
    return PublishedNumber(value=float(value), where=flattened(where, f"{place}: where"), **texts)


def _rows(path: Path) -> list[dict[str, Any]]:
    """A column a key; any other column is a setting that the number is for."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            if reader.fieldnames is None or not {"label", "value"} <= set(reader.fieldnames):
                raise InputError(f"published: {path} should have the columns label, value, unit and source")
            return [_row(row, path, number) for number, row in enumerate(reader, 2)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"published: cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


def _row(row: dict[str | Any, Any], path: Path, line: int) -> dict[str, Any]:
    found: dict[str, Any] = {key: row[key] or "" for key in KEYS[:5] if key in row}
    try:
        found["value"] = float(row["value"])
    except (TypeError, ValueError):
        raise InputError(f"published: {path} line {line}: value {row['value']!r} should be a number") from None
    found["where"] = {key: _value(text) for key, text in row.items() if key not in KEYS and key and text}
    return found


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
