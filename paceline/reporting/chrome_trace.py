"""Exports a trace for Perfetto or chrome://tracing in the trace-event format, with one row per process.

Events of a row may be nested but must not overlap partially; those that do are moved to another row.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from paceline.reporting.sections.timeline import drawn_spans, row_order
from paceline.results.labels import grouped
from paceline.trace import Span, Trace

TRACE = "trace.json"


def chrome_trace(trace: Trace, name: str = "paceline") -> str:
    return chrome_traces({name: trace})


def chrome_traces(traces: Mapping[str, Trace]) -> str:
    """Several traces in one file, by name."""
    events = [event for number, name in enumerate(traces, start=1) for event in _events(number, name, traces[name])]
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}, allow_nan=False)


class _Bar(NamedTuple):
    """A span in whole nanoseconds, the resolution of Perfetto, so that rounding cannot make two spans overlap."""

    start_ns: int
    end_ns: int
    span: Span


def _events(process: int, name: str, trace: Trace) -> Iterable[dict[str, Any]]:
    yield _named("process_name", process, 0, name=name)
    # Rows are numbered from 1: Perfetto takes 0 for the idle task of an operating system.
    for row, (who, bars) in enumerate(_rows(trace), start=1):
        yield _named("thread_name", process, row, name=who)
        yield _named("thread_sort_index", process, row, sort_index=row)
        for start_ns, end_ns, span in bars:
            name = f"{span.part} {span.layer}".strip()
            event = {"name": name, "cat": span.part, "ph": "X", "pid": process, "tid": row}
            event |= {"ts": start_ns / 1e3, "dur": (end_ns - start_ns) / 1e3}
            yield event | ({"args": {"note": span.note}} if span.note else {})


def _named(what: str, process: int, row: int, **words: Any) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": process, "tid": row, "args": words}


def _rows(trace: Trace) -> Iterable[tuple[str, list[_Bar]]]:
    """The name of each row and its bars in order of time."""
    spans = drawn_spans(trace)
    begin_s = min((0.0, *(span.start_s for span in spans)))
    bars = [_Bar(round(1e9 * (s.start_s - begin_s)), round(1e9 * (s.end_s - begin_s)), s) for s in spans]
    by_row = grouped(sorted(bars, key=lambda bar: (bar.start_ns, -bar.end_ns)), lambda bar: bar.span.who)
    for who in sorted(by_row, key=row_order):
        for number, row in enumerate(_without_overlap(by_row[who]), start=1):
            yield (who if number == 1 else f"{who} ({number})"), row


def _without_overlap(bars: list[_Bar]) -> list[list[_Bar]]:
    """The fewest rows in which bars follow each other or are nested."""
    rows: list[tuple[list[_Bar], list[int]]] = []  # bars, and when the open ones end, innermost last
    for bar in bars:
        for _, ends_ns in rows:
            while ends_ns and ends_ns[-1] <= bar.start_ns:
                ends_ns.pop()
        row = next((row for row in rows if not row[1] or bar.end_ns <= row[1][-1]), ([], []))
        if not row[0]:
            rows.append(row)
        row[0].append(bar)
        row[1].append(bar.end_ns)
    return [row for row, _ in rows]
