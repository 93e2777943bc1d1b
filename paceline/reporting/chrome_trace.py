"""Exports a trace for Perfetto or chrome://tracing in the trace-event format, with one row per process.

Events of a row may be nested but must not overlap partially; those that do are moved to another row.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from paceline.reporting.sections.timeline import drawn_spans, row_order
from paceline.trace import Trace

TRACE = "trace.json"


def chrome_trace(trace: Trace, name: str = "paceline") -> str:
    return chrome_traces({name: trace})


def chrome_traces(traces: Mapping[str, Trace]) -> str:
    """Several traces in one file, by name."""
    events = [event for number, name in enumerate(traces, start=1) for event in _events(number, name, traces[name])]
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}, allow_nan=False)


@dataclass(frozen=True, slots=True)
class _Bar:
    """A span in whole nanoseconds, the resolution of Perfetto, so that rounding cannot make two spans overlap."""

    who: str
    part: str
    layer: str
    note: str
    start_ns: int
    end_ns: int


def _events(process: int, name: str, trace: Trace) -> Iterable[dict[str, Any]]:
    yield _named("process_name", process, 0, name=name)
    # Rows are numbered from 1: Perfetto takes 0 for the idle task of an operating system.
    for row, (who, bars) in enumerate(_rows(trace), start=1):
        yield _named("thread_name", process, row, name=who)
        yield _named("thread_sort_index", process, row, sort_index=row)
        for bar in bars:
            name = f"{bar.part} {bar.layer}".strip()
            event = {"name": name, "cat": bar.part, "ph": "X", "pid": process, "tid": row}
            event |= {"ts": bar.start_ns / 1e3, "dur": (bar.end_ns - bar.start_ns) / 1e3}
            yield event | ({"args": {"note": bar.note}} if bar.note else {})


def _named(what: str, process: int, row: int, **words: Any) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": process, "tid": row, "args": words}


def _rows(trace: Trace) -> Iterable[tuple[str, list[_Bar]]]:
    """The name of each row and its bars in order of time."""
    bars: dict[str, list[_Bar]] = {}
    for bar in sorted(_bars(trace), key=lambda bar: (bar.start_ns, -bar.end_ns)):
        bars.setdefault(bar.who, []).append(bar)
    for who in sorted(bars, key=row_order):
        for number, row in enumerate(_without_overlap(bars[who]), start=1):
            yield (who if number == 1 else f"{who} ({number})"), row


def _bars(trace: Trace) -> list[_Bar]:
    spans = drawn_spans(trace)
    begin_s = min((0.0, *(span.start_s for span in spans)))
    return [
        _Bar(s.who, s.part, s.layer, s.note, round(1e9 * (s.start_s - begin_s)), round(1e9 * (s.end_s - begin_s)))
        for s in spans
    ]


def _without_overlap(bars: list[_Bar]) -> list[list[_Bar]]:
    """The fewest rows in which bars follow each other or are nested."""
    rows: list[list[_Bar]] = []
    under_way: list[list[int]] = []
    """For each row, when its open bars end, innermost last."""
    for bar in bars:
        for ends_ns in under_way:
            while ends_ns and ends_ns[-1] <= bar.start_ns:
                ends_ns.pop()
        room = (row for row, ends_ns in enumerate(under_way) if not ends_ns or bar.end_ns <= ends_ns[-1])
        row = next(room, len(rows))
        if row == len(rows):
            rows.append([])
            under_way.append([])
        rows[row].append(bar)
        under_way[row].append(bar.end_ns)
    return rows
