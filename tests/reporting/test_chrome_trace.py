"""Traces for Perfetto: named rows, times in microseconds, and nothing in a row that overlaps in part."""

from __future__ import annotations

import json
import math

from hypothesis import given
from hypothesis import strategies as st

from paceline.reporting.chrome_trace import chrome_trace, chrome_traces
from paceline.trace import Span, Trace
from tests.reporting.trace_reading import read_rows

TRACE = Trace(
    (
        Span("worker 10", "compute", 0.0, 1.5),
        Span("worker 2", "compute", 0.25, 0.5, "epoch 1"),
        Span("main", "checkpoint", 0.25, 0.5),
        Span("main", "train", 0.0, 2.0),
        Span("server", "update", 1.5, 1.75),
    )
)


def test_every_who_is_a_named_row_in_a_natural_order():
    rows = read_rows(chrome_trace(TRACE, "a run"))
    assert list(rows) == [("a run", "main"), ("a run", "server"), ("a run", "worker 2"), ("a run", "worker 10")]
    assert rows["a run", "worker 2"] == [("compute", 250_000.0, 250_000.0, "epoch 1")]
    assert rows["a run", "main"] == [("train", 0.0, 2e6, ""), ("checkpoint", 250_000.0, 250_000.0, "")]


def test_several_traces_are_processes_of_one_file():
    rows = read_rows(chrome_traces({"2 workers": TRACE, "4 workers": Trace((Span("worker 0", "a", 0, 1),))}))
    assert ("4 workers", "worker 0") in rows and ("2 workers", "worker 2") in rows


def test_what_overlaps_in_part_is_in_a_row_below():
    spans = (Span("a", "x", 0.0, 2.0), Span("a", "y", 1.0, 3.0), Span("a", "z", 2.0, 4.0), Span("a", "w", 2.5, 3.5))
    rows = read_rows(chrome_trace(Trace(spans)))
    assert [[event[0] for event in row] for row in rows.values()] == [["x", "z", "w"], ["y"]]
    assert [who for _, who in rows] == ["a", "a (2)"]


def test_what_is_no_span_is_left_out_and_time_begins_at_zero():
    spans = (Span("a", "x", -1.0, 2.0), Span("a", "y", math.nan, 1.0), Span("a", "z", 3.0, 2.5), Span("b", "w", 0, 1))
    rows = read_rows(chrome_trace(Trace(spans)))
    assert rows["paceline", "a"] == [("x", 0.0, 3e6, "")] and rows["paceline", "b"] == [("w", 1e6, 1e6, "")]


def test_a_trace_of_nothing_is_a_file_all_the_same():
    assert [event["ph"] for event in json.loads(chrome_trace(Trace()))["traceEvents"]] == ["M"]


numbers = st.floats(-1e3, 1e3, allow_nan=False)


@given(st.lists(st.tuples(st.sampled_from("ab"), numbers, st.floats(0.0, 100.0)), max_size=30))
def test_any_trace_can_be_drawn_and_nothing_is_lost(given):
    spans = tuple(Span(who, "what", start, start + length) for who, start, length in given)
    rows = read_rows(chrome_trace(Trace(spans)))  # checks every row
    assert sum(len(row) for row in rows.values()) == len(spans)
