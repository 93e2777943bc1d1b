"""The wall-clock time of a run: loading, preparing, training, validating, checkpoints, and the rest."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.reporting.figure import Cell, Column, Figure, View, table
from paceline.results.run_result import RunResult
from paceline.trace import Trace

NAMES = {
    "load": "loading data", "prepare": "preparing", "start": "starting processes", "train": "training",
    "validate": "validating", "checkpoint": "writing checkpoints",
}  # fmt: skip
REST = "unattributed"
MOST_RUNS = 40


def time_parts(trace: Trace) -> dict[str, float]:
    """Seconds of the main process by what it did; what no span covers is shown as such."""
    spans = [span for span in trace.spans if span.who == "main"]  # those of workers overlap, or are simulated
    total = max((span.end_s for span in spans), default=0.0)
    if not total > 0:
        return {}
    seconds = dict.fromkeys((span.part for span in spans), 0.0)
    training = [span for span in spans if span.part == "train"]
    for span in spans:
        seconds[span.part] += span.duration_s
        if span.part == "checkpoint" and any(t.start_s <= span.start_s <= t.end_s for t in training):
            seconds["train"] -= span.duration_s
    rest = total - sum(seconds.values())
    return {**{NAMES.get(what, what): value for what, value in seconds.items()}, REST: max(0.0, rest)}


def wall_clock_figure(runs: Sequence[RunResult]) -> Figure | None:
    found = [(run, parts) for run in runs if not run.virtual and (parts := time_parts(run.trace))]
    if not found:
        return None
    names = [name for name in dict.fromkeys(name for _, parts in found for name in parts) if name != REST] + [REST]
    rows: list[Sequence[Cell]] = [
        (run.label, *(parts.get(name, 0.0) for name in names)) for run, parts in found[:MOST_RUNS]
    ]
    data = table(("run", *(Column(name, "s") for name in names)), rows)
    notes = [f"The first {MOST_RUNS} of {len(found)} runs."] if len(found) > MOST_RUNS else []
    if any(run.run is not None and run.run.resumed for run, _ in found):
        notes.append("For a resumed run, the time since it was last resumed.")
    view = View("", data, {"category": "run", "parts": names})
    return Figure("wall-clock", "Wall-clock time of the run", "stack", (view,), note=" ".join(notes), wide=True)
