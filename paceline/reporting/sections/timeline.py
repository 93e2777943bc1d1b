"""The timeline: one row per process, from the spans of a trace, simulated or real."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from paceline.formatting import count, duration
from paceline.measurement.measurement import Measurement
from paceline.reporting.figure import Column, Figure, Section, Table, View, table
from paceline.results.run_result import RunResult, groups_of
from paceline.trace import Span, Trace

MOST_SPANS = 20_000
MOST_VIEWS = 8


def timeline(runs: Sequence[RunResult], measured: Sequence[tuple[str, Measurement]]) -> Section | None:
    of_workers = [run for run in runs if any(span.who != "main" for span in run.trace.spans)]
    if len(of_workers) > MOST_VIEWS:  # one of each kind tells more than all repetitions of one
        of_workers = [group[0] for group in groups_of(of_workers).values()]
    of_workers.sort(key=lambda run: -run.workers)
    traced = [(run.label, run.trace) for run in of_workers]
    traced += [(f"an iteration of {name}", _split_names(m.trace)) for name, m in measured if m.trace.spans]
    shown = traced[:MOST_VIEWS]
    if not shown:
        return None
    views = []
    notes = ["Drag to move; zoom with Ctrl and the mouse wheel, the buttons, or the slider."]
    for name, trace in shown:
        spans = drawn_spans(trace)
        views.append(View(name, _table(spans), {"row": "who", "what": "what", "start": "start", "end": "end"}))
        if len(spans) < len(trace.spans):
            notes.append(f"{name}: {len(trace.spans):,} spans are drawn as {len(spans):,}.")
    if len(traced) > MOST_VIEWS:
        notes.append(f"{MOST_VIEWS} of {len(traced)} traces are shown.")
    if of_workers:
        notes.append("Only the first spans of a long run are recorded.")
    name, trace = shown[0]
    end_s = max(span.end_s for span in trace.spans)
    rows = len({span.who for span in trace.spans})
    says = f"{name}: {count(len(trace.spans), 'span')} of {count(rows, 'process', 'processes')}, {duration(end_s)}."
    figure = Figure(
        "timeline",
        "Activity of each process",
        "timeline",
        tuple(views),
        says,
        " ".join(notes),
        choice="trace",
        wide=True,
    )
    return Section("timeline", "Timeline", blocks=(figure,))


def _split_names(trace: Trace) -> Trace:
    """A measurement's spans name a part and a layer; rows are coloured by the part."""
    return Trace(
        tuple(
            Span(span.who, span.what.split(" ", 1)[0], span.start_s, span.end_s, span.what.partition(" ")[2])
            for span in trace.spans
        )
    )


def _whole(trace: Trace) -> list[Span]:
    return [s for s in trace.spans if math.isfinite(s.start_s) and math.isfinite(s.end_s) and s.end_s >= s.start_s]


def drawn_spans(trace: Trace, most: int = MOST_SPANS) -> list[Span]:
    """All spans; of too many, what each row did most in each of as many moments as can be drawn."""
    spans = _whole(trace)
    if len(spans) <= most:
        return spans
    rows: dict[str, list[Span]] = {}
    for span in spans:
        rows.setdefault(span.who, []).append(span)
    begin_s, end_s = min(s.start_s for s in spans), max(s.end_s for s in spans)
    moments = max(1, most // len(rows))
    found = []
    for who, mine in rows.items():
        found += _most_of_each_moment(who, mine, begin_s, (end_s - begin_s) / moments or 1.0, moments)
    return found


def _most_of_each_moment(who: str, spans: list[Span], begin_s: float, width_s: float, moments: int) -> list[Span]:
    shares: list[dict[str, float]] = [{} for _ in range(moments)]
    for span in spans:
        first = min(moments - 1, int((span.start_s - begin_s) / width_s))
        last = min(moments - 1, int((span.end_s - begin_s) / width_s))
        for moment in range(first, last + 1):
            left = max(span.start_s, begin_s + moment * width_s)
            right = min(span.end_s, begin_s + (moment + 1) * width_s)
            shares[moment][span.what] = shares[moment].get(span.what, 0.0) + max(0.0, right - left)
    found: list[Span] = []
    for moment, share in enumerate(shares):
        what = max(share, key=lambda name: share[name]) if share else ""
        if not what or sum(share.values()) < width_s / 2:
            continue
        start_s, end_s = begin_s + moment * width_s, begin_s + (moment + 1) * width_s
        if found and found[-1].what == what and math.isclose(found[-1].end_s, start_s):
            found[-1] = Span(who, what, found[-1].start_s, end_s)
        else:
            found.append(Span(who, what, start_s, end_s))
    return found


def _table(spans: list[Span]) -> Table:
    rows = sorted({span.who for span in spans}, key=row_order)
    place = {who: number for number, who in enumerate(rows)}
    ordered = sorted(spans, key=lambda s: (place[s.who], s.start_s, -s.end_s))
    columns = ("who", "what", Column("start", "s"), Column("end", "s"), "note")
    return table(columns, [(s.who, s.what, s.start_s, s.end_s, s.note) for s in ordered])


def row_order(who: str) -> tuple[int, int, str]:
    """The main process, then the server and its shards, then workers by number."""
    found = re.search(r"(\d+)$", who)
    return {"main": 0, "server": 1}.get(who.split(" ")[0], 2), int(found.group(1)[:9]) if found else 0, who
