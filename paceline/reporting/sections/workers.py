"""Workers: time computing, communicating and waiting; staleness of their payloads; faults."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from paceline.formatting import count, median_of, percent
from paceline.reporting.colours import group_styles
from paceline.reporting.figure import Cell, Column, Figure, Section, TableBlock, View, figure, listing, section, table
from paceline.results.labels import grouped
from paceline.results.run_result import RunResult
from paceline.strategy.distribution import ACTIVITIES, Distribution

MOST_BARS = 40
MOST_VIEWS = 8
MOST_BINS = 50
MOST_ROWS = 200


def workers(runs: Sequence[RunResult]) -> Section | None:
    found = [(run, run.distribution) for run in runs if run.distribution is not None]
    blocks = (_shares(found), _by_worker(found), staleness(runs), _batches(found), _faults(found))
    return section("workers", "Workers", _sentences(found), blocks=blocks)


def _sentences(found: Sequence[tuple[RunResult, Distribution]]) -> Iterable[str]:
    waiting = [(d.waiting_share, run) for run, d in found if math.isfinite(d.waiting_share)]
    if len(waiting) == 1:
        yield f"Workers waited {percent(waiting[0][0])} of the time."
    elif waiting:
        most, run = max(waiting, key=lambda entry: entry[0])
        yield f"Workers waited most with {run.label}: {percent(most)} of the time."
    stale = [(d.ledger.mean_staleness, d, run) for run, d in found if d.ledger.mean_staleness > 0]
    if stale:
        mean, d, run = max(stale, key=lambda entry: entry[0])
        whose = f" with {run.label}" if len(found) > 1 else ""
        yield (
            f"The mean staleness{whose} is {mean:.1f} updates; 99 % of the payloads have at most "
            f"{d.ledger.staleness_up_to(0.99):,}."
        )
    if faults := sum(d.fault_count for _, d in found):
        them = "it" if faults == 1 else "each of them"
        yield f"{count(faults, 'fault')} occurred; training continued after {them}."


def _shares(found: Sequence[tuple[RunResult, Distribution]]) -> Figure | None:
    """One bar per setting, if there are several."""
    rows: list[tuple[Cell, ...]] = []
    for group, members in grouped(found, lambda entry: entry[0].group).items():
        spent = [d.spent_s.values() for _, d in members]
        shares = [[100 * s / sum(all_s) for s in all_s] for all_s in spent if sum(all_s) > 0]
        if shares:
            rows.append((group, *(median_of(values) for values in zip(*shares, strict=True))))
    if len(rows) < 2:
        return None
    note = f"The first {MOST_BARS} of {len(rows)} settings." if len(rows) > MOST_BARS else ""
    data = table(("runs", *(Column(what, "%") for what in ACTIVITIES)), rows[:MOST_BARS])
    view = View("", data, {"category": "runs", "parts": list(ACTIVITIES), "whole": 100})
    return Figure("shares", "How workers spend their time", "stack", (view,), note=note, wide=True)


def _by_worker(found: Sequence[tuple[RunResult, Distribution]]) -> Figure | None:
    views = []
    told = sorted(((run, d) for run, d in found if d.by_worker), key=lambda entry: -entry[0].workers)
    if len(told) > MOST_VIEWS:
        told = [some[0] for some in grouped(told, lambda entry: entry[0].group).values()]
    for run, d in told[:MOST_VIEWS]:
        columns: list[str | Column] = [
            "worker", *(Column(what, "s") for what in ACTIVITIES), "batches", "samples", Column("loss"),
            Column("accuracy", "%"), "starts",
        ]  # fmt: skip
        rows = [
            (
                f"worker {w.worker}", w.computing_s, w.communicating_s, w.waiting_s, w.batches, w.samples, w.loss,
                100 * w.accuracy, w.starts,
            )
            for w in d.by_worker
        ]  # fmt: skip
        options = {"category": "worker", "parts": list(ACTIVITIES), "most": MOST_BARS, "first": True}
        views.append(View(run.label, table(columns, rows[:MOST_ROWS]), options))
    many = any(run.workers > MOST_BARS for run, _ in told[:MOST_VIEWS])
    note = f"Of more workers than {MOST_BARS}, the first are drawn." if many else ""
    return figure("by-worker", "Time by worker", "stack", views, note=note, choice="run", wide=True)


def staleness(runs: Sequence[RunResult]) -> Figure | None:
    """The distribution of staleness; None for synchronous runs alone."""
    counts: dict[str, Counter[int]] = {}
    for run in runs:
        if run.distribution is not None and run.distribution.ledger.staleness:
            known = {int(s): n for s, n in run.distribution.ledger.staleness.items()}
            counts.setdefault(run.group, Counter()).update(known)
    highest = max((max(total) for total in counts.values()), default=0)
    if highest == 0:
        return None
    width = math.ceil((highest + 1) / MOST_BINS)
    rows = []
    for group, total in counts.items():
        everything = total.total()
        for low in range(0, max(total) + 1, width):
            inside = sum(total[s] for s in range(low, low + width))
            said = str(low) if width == 1 else f"{low}–{low + width - 1}"
            rows.append((group, said, low + (width - 1) / 2, inside, 100 * inside / everything))
    data = table(("runs", "staleness", Column("staleness in updates"), "payloads", Column("share", "%")), rows)
    kind, options = "bars", {"category": "staleness", "values": ["share"], "upright": True}
    if len(counts) > 1:
        kind, options = "lines", {"line": "runs", "x": "staleness in updates", "y": "share", "whole": True}
        options |= group_styles(runs)
    means = {group: sum(s * n for s, n in total.items()) / total.total() for group, total in counts.items()}
    late = max(means, key=lambda group: means[group])
    says = f"The mean staleness of {late} is {means[late]:.2f} updates; the largest of any run is {highest}."
    note = "Staleness: the number of updates between a worker's pull and its push."
    return Figure("staleness", "Staleness", kind, (View("", data, options),), says, note, wide=True)


def _batches(found: Sequence[tuple[RunResult, Distribution]]) -> TableBlock | None:
    columns = (
        "run", "applied", "dropped", "refused", "reassigned", "updates", Column("updates", "per second"),
        Column("mean staleness"), Column("waiting", "%"), Column("server busy", "s"), "faults",
    )  # fmt: skip
    rows = [
        (
            run.label, d.ledger.applied, d.ledger.dropped, d.ledger.refused, d.ledger.returned, d.updates,
            d.updates_per_s, d.ledger.mean_staleness, 100 * d.waiting_share, d.server_s, d.fault_count,
        )
        for run, d in found
    ]  # fmt: skip
    return listing("batches", "Batches and updates", columns, rows, folded=len(rows) > 3)


def _faults(found: Sequence[tuple[RunResult, Distribution]]) -> TableBlock | None:
    rows = [
        (run.label, f.at_s, f.what, "" if f.worker is None else f"worker {f.worker}", f.note)
        for run, d in found
        for f in d.faults
    ]
    rows, everything = rows[:MOST_ROWS], sum(d.fault_count for _, d in found)
    note = f"The first {len(rows)} of {everything}." if everything > len(rows) else ""
    return listing("faults", "Faults", ("run", Column("at", "s"), "what", "who", "note"), rows, note=note)
