"""Reads a trace file as Perfetto would, and refuses what Perfetto draws wrongly."""

from __future__ import annotations

import json
from typing import Any

import pytest

Row = list[tuple[str, float, float, str]]
"""Name, beginning, duration in microseconds, and note."""


def read_rows(text: str) -> dict[tuple[str, str], Row]:
    """By (process, row), in the order in which they are shown."""
    events = json.loads(text, parse_constant=pytest.fail)["traceEvents"]
    told: dict[str, dict[tuple[int, int], Any]] = {}
    rows: dict[tuple[int, int], Row] = {}
    for event in events:
        place = event["pid"], event["tid"]
        if event["ph"] == "M":
            (told.setdefault(event["name"], {})[place],) = event["args"].values()
            continue
        assert event["ph"] == "X" and event["pid"] > 0 and event["tid"] > 0
        assert isinstance(event["name"], str) and event["name"]
        note = event.get("args", {}).get("note", "")
        rows.setdefault(place, []).append((event["name"], event["ts"], event["dur"], note))
    for row in rows.values():
        _check(row)
    order = sorted(rows, key=lambda place: (place[0], told["thread_sort_index"][place]))
    return {(told["process_name"][place[0], 0], told["thread_name"][place]): rows[place] for place in order}


def _check(row: Row) -> None:
    """In order, none before zero, each after the one before it or inside it."""
    under_way: list[int] = []
    last = 0
    for _, start_us, length_us, _ in row:
        start, end = round(1e3 * start_us), round(1e3 * start_us) + round(1e3 * length_us)
        assert start >= last >= 0 and length_us >= 0
        last = start
        while under_way and under_way[-1] <= start:
            under_way.pop()
        assert not under_way or end <= under_way[-1], "it overlaps another in part"
        under_way.append(end)
