"""The timeline of a trace: one row per process, simulated or real."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from paceline.formatting import count, duration
from paceline.measurement.measurement import Measurement
from paceline.reporting.figure import Column, Section, Table, View, figure, section, table
from paceline.results.run_result import RunResult, groups_of
from paceline.trace import Span, Trace

MOST_SPANS = 20_000
MOST_VIEWS = 8


def timeline(runs: Sequence[RunResult], measured: Sequence[tuple[str, Measurement]]) -> Section | None:
    of_workers = [run for run in runs if any(span.who != "main" for span in run.trace.spans)]
    if len(of_workers) > MOST_VIEWS:  # one per setting instead of all repetitions
        of_workers = [group[0] for group in groups_of(of_workers).values()]
    of_workers.sort(key=lambda run: -run.workers)
    traced = [(run.label, run.trace) for run in of_workers]
    traced += [(f"an iteration of {name}", m.trace) for name, m in measured if m.trace.spans]
    views, says = [], ""
    notes = ["Drag to move; zoom with Ctrl and the mouse wheel, the buttons, or the slider."]
    for name, trace in traced[:MOST_VIEWS]:
        spans = drawn_spans(trace, MOST_SPANS)
        views.append(View(name, _table(spans), {"row": "who", "what": "what", "start": "start", "end": "end"}))
        if len(spans) < len(trace.spans):
            notes.append(f"{name}: the first {len(spans):,} of {len(trace.spans):,} spans.")
        rows = count(len({span.who for span in trace.spans}), "process", "processes")
        end = duration(max(span.end_s for span in trace.spans))
        says = says or f"{name}: {count(len(trace.spans), 'span')} of {rows}, {end}."
    if len(traced) > MOST_VIEWS:
        notes.append(f"{MOST_VIEWS} of {len(traced)} traces are shown.")
    if of_workers:
        notes.append("Only the first spans of a long run are recorded.")
    title, note = "Activity of each process", " ".join(notes)
    drawn = figure("timeline", title, "timeline", views, says, note=note, choice="trace", wide=True)
    return section("timeline", "Timeline", blocks=(drawn,))


def drawn_spans(trace: Trace, most: float = math.inf) -> list[Span]:
    """Spans with finite times; at most `most`, earliest first."""
    spans = [s for s in trace.spans if math.isfinite(s.start_s) and math.isfinite(s.end_s) and s.end_s >= s.start_s]
    return spans if len(spans) <= most else sorted(spans, key=lambda span: span.start_s)[: int(most)]


def _table(spans: list[Span]) -> Table:
    rows = sorted({span.who for span in spans}, key=row_order)
    place = {who: number for number, who in enumerate(rows)}
    ordered = sorted(spans, key=lambda s: (place[s.who], s.start_s, -s.end_s))
    columns = ("who", "what", Column("start", "s"), Column("end", "s"), "note")
    return table(columns, [(s.who, s.part, s.start_s, s.end_s, f"{s.layer} {s.note}".strip()) for s in ordered])


def row_order(who: str) -> tuple[int, int, str]:
    """The main process, then the server and its shards, then workers by number."""
    found = re.search(r"(\d+)$", who)
    return {"main": 0, "server": 1}.get(who.split(" ")[0], 2), int(found.group(1)[:9]) if found else 0, who
