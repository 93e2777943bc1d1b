"""Threads: seconds of a batch on 1, 2, 4 and 8 threads, beside three frameworks on another processor."""

from __future__ import annotations

import math
from pathlib import Path

from paceline.formatting import count, duration, listed
from paceline.reproduction.study import Beside
from paceline.results.comparison_rows import ExtraTable, Finding, PublishedRow
from paceline.results.table import ResultsTable
from paceline.step.placement import available_cores, processor_name

QUICK = "This is the quick version: 20 iterations instead of 60, once instead of three times."
SOURCE = "a guide of 2018, i7-3820 (4 cores)"
THREADS = (1, 2, 4, 8)
SECONDS = {
    "Caffe": (1.324, 0.790, 0.578, 15.444),
    "TensorFlow": (7.062, 4.789, 2.648, 1.938),
    "Torch": (1.329, 0.710, 0.423, math.nan),
}
OURS = "Paceline here"


def beside(found: ResultsTable, directory: Path) -> Beside:
    ours = {
        row["threads"]: float(row.get("iteration_s_mean", math.nan)) for row in found.summary if row.get("n")
    }  # fmt: skip
    made = Beside()
    made.published = [
        PublishedRow(
            f"{name}, {count(threads, 'thread')}", theirs, ours.get(threads, math.nan), "s a batch of 64",
            SOURCE, along="threads", at=threads, line=name, our_line=OURS,
        )
        for name, seconds in SECONDS.items()
        for threads, theirs in zip(THREADS, seconds, strict=True)
        if math.isfinite(theirs)
    ]  # fmt: skip
    if len(ours) == len(THREADS):
        made.findings = [Finding(_sentence(ours), "published-lines")]
    made.tables = [_speed_ups(ours)]
    return made


def _sentence(ours: dict[int, float]) -> str:
    cores = available_cores()
    times = listed(f"{duration(ours[t])} with {t}" for t in THREADS)
    theirs = ", ".join(f"{name} {_gain(seconds):.2f}" for name, seconds in SECONDS.items())
    return (
        f"A batch takes {times} threads on {count(cores, 'core')} of {processor_name()}: the most that threads gain is "
        f"a factor of {_gain(tuple(ours[t] for t in THREADS)):.2f} ({theirs} on four cores)."
    )


def _gain(seconds: tuple[float, ...]) -> float:
    """How many times as fast as one thread the best number of them is."""
    return seconds[0] / min(s for s in seconds if math.isfinite(s))


def _speed_ups(ours: dict[int, float]) -> ExtraTable:
    rows = [
        (name, *(f"{seconds[0] / s:.2f}" if math.isfinite(s) else "" for s in seconds))
        for name, seconds in SECONDS.items()
    ]
    mine = [ours.get(threads, math.nan) for threads in THREADS]
    rows.append((OURS, *(f"{mine[0] / s:.2f}" if math.isfinite(s) else "" for s in mine)))
    header = ("times as fast as on one thread", *(count(t, "thread") for t in THREADS))
    return ExtraTable("Gained by threads", header, tuple(rows))
