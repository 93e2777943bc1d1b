"""Threads: the speedup of an iteration with 2, 4 and 8 threads, beside that of three frameworks on another processor.

The size of the published network is not known, so seconds are not compared.
"""

from __future__ import annotations

import math
from pathlib import Path

from paceline.formatting import count, duration, listed, times
from paceline.reproduction.study import Conclusions
from paceline.results.comparison_rows import ExtraTable, Finding, PublishedRow
from paceline.results.noise import LEAST_GAIN, differs
from paceline.results.table import ResultsTable
from paceline.step.placement import available_cores, processor_name

THREADS = (1, 2, 4, 8)
SECONDS = {
    "Caffe": (1.324, 0.790, 0.578, 15.444),
    "TensorFlow": (7.062, 4.789, 2.648, 1.938),
    "Torch": (1.329, 0.710, 0.423, math.nan),
}
"""Seconds per batch of 64 on an Intel i7-3820 with four cores."""
OURS = "Paceline here"


def conclude(found: ResultsTable, directory: Path) -> Conclusions:
    ours = {row["threads"]: float(row.get("iteration_s_mean", math.nan)) for row in found.summary if row.get("n")}
    speed = {threads: ours[1] / seconds for threads, seconds in ours.items() if 1 in ours}
    made = Conclusions(tables=[_seconds(ours)])
    made.published = [
        PublishedRow(
            f"{name}, {count(threads, 'thread')}", seconds[0] / theirs, speed.get(threads, math.nan),
            "times the speed of one thread", along="threads", at=threads, line=name, our_line=OURS,
        )
        for name, seconds in SECONDS.items()
        for threads, theirs in zip(THREADS, seconds, strict=True)
        if math.isfinite(theirs)
    ]  # fmt: skip
    if len(ours) == len(THREADS):
        mine = tuple(ours[threads] for threads in THREADS)
        best = THREADS[mine.index(min(mine))]
        made.findings = [
            Finding(_headline(best, mine, differs(_times(found, 1), _times(found, best))), "published-lines"),
            Finding(f"This machine has {count(available_cores(), 'core')} of {processor_name()}."),
            Finding(
                f"On four cores of an i7-3820, Wünsche reports speedups of "
                f"{listed(f'{_speedup(seconds):.2f} ({name})' for name, seconds in SECONDS.items())}."
            ),
        ]
    return made


def _times(found: ResultsTable, threads: int) -> list[float]:
    return [row["iteration_s"] for row in found.rows if row["threads"] == threads and row["status"] == "finished"]


def _headline(best: int, mine: tuple[float, ...], apart: bool | None) -> str:
    if apart is None and best != THREADS[0]:  # without repetitions, which of them is fastest is not known
        ends = (f"{duration(s)} with {count(THREADS[mine.index(s)], 'thread')}" for s in (min(mine), max(mine)))
        return f"A batch of 64 takes from {' to '.join(ends)} (one run each)."
    if _speedup(mine) < 1 + LEAST_GAIN or apart is False:
        return "More than one thread does not make a batch of 64 faster here."
    return (
        f"A batch of 64 is fastest with {best} threads: {duration(min(mine))}, {times(_speedup(mine))} as fast as with "
        f"one thread."
    )


def _speedup(seconds: tuple[float, ...]) -> float:
    """The best number of threads over one thread."""
    return seconds[0] / min(s for s in seconds if math.isfinite(s))


def _seconds(ours: dict[int, float]) -> ExtraTable:
    all_seconds = {**SECONDS, OURS: tuple(ours.get(threads, math.nan) for threads in THREADS)}
    rows = [(name, *(f"{s:.4g}" * math.isfinite(s) for s in seconds)) for name, seconds in all_seconds.items()]
    header = ("framework", *(count(t, "thread") for t in THREADS))
    return ExtraTable("Seconds per batch of 64, of different networks and processors", header, tuple(rows))
