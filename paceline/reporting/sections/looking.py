"""What measuring costs, and how much it misses: trainings with and without it, repetitions together."""

from __future__ import annotations

import math
from collections.abc import Sequence

from paceline.formatting import count, middle, percent
from paceline.measurement.measurement import Measurement
from paceline.reporting.figure import Cell, Column, Figure, Section, TableBlock, View, table
from paceline.results.run_result import MEASURED, RunResult

Setting = tuple[str, int]
"""A network and its batch size."""


def looking(measured: Sequence[tuple[str, Measurement]], runs: Sequence[RunResult]) -> Section | None:
    """Where something was measured more than once, or trained with and without being measured."""
    by_setting: dict[Setting, list[Measurement]] = {}
    for _, m in measured:
        by_setting.setdefault((m.name, m.batch), []).append(m)
    pairs = {setting: _pairs(runs, setting) for setting in by_setting}
    if not any(pairs.values()):
        return None
    columns = (
        "network", "batch", "repetitions", Column("training without", "s"), Column("training with", "s"),
        Column("more with", "%"), Column("least", "%"), Column("greatest", "%"), Column("cost by the clock", "%"),
        Column("unaccounted", "%"), Column("unaccounted, least", "%"), Column("unaccounted, greatest", "%"),
    )  # fmt: skip
    rows: list[tuple[Cell, ...]] = []
    for (name, batch), ms in by_setting.items():
        found = pairs[name, batch]
        if not found:
            continue
        more = [100 * (with_s / without_s - 1) for without_s, with_s in found]
        missed = [100 * (1 - m.accounted) for m in ms]
        rows.append((
            name, batch, len(ms), middle(a for a, _ in found), middle(b for _, b in found), middle(more), min(more),
            max(more), 100 * middle(m.overhead for m in ms), middle(missed), min(missed), max(missed),
        ))  # fmt: skip
    named = [(f"{name}, batch {batch}", *rest) for name, batch, *rest in rows]
    seconds = table(("training", "repetitions", *columns[3:]), named)
    times = View("", seconds, {"category": "training", "values": ["training without", "training with"]})
    says = looking_sentence(measured, runs)
    note = (
        "Whole trainings of the same seed, one with the clock and one without; what other work on the machine did to "
        "either is in it. The clock's own account compares iterations that stand beside each other in one training. "
        "Unaccounted is what is missing from an iteration before anything is scaled; below 0, something counted twice."
    )
    figure = Figure("with-and-without", "Training with and without measuring", "bars", (times,), says, wide=True)
    listing = TableBlock("looking-rows", "With and without, in figures", table(columns, rows), note)
    return Section("looking", "What measuring costs", (says,), blocks=(figure, listing))


def _pairs(runs: Sequence[RunResult], setting: Setting) -> list[tuple[float, float]]:
    """Seconds of training without and with measuring, of runs that are the same otherwise."""
    seconds: dict[str, dict[tuple[tuple[str, str], ...], float]] = {"False": {}, "True": {}}
    for run in runs:
        same = (run.settings["network"], run.settings["batch"]) == (setting[0], str(setting[1]))
        if same and MEASURED in run.settings and run.seconds > 0:
            others = tuple(sorted((key, value) for key, value in run.settings.items() if key != MEASURED))
            seconds[run.settings[MEASURED]][others] = run.seconds
    return [(without, seconds["True"][key]) for key, without in seconds["False"].items() if key in seconds["True"]]


def looking_sentence(measured: Sequence[tuple[str, Measurement]], runs: Sequence[RunResult]) -> str:
    settings = list(dict.fromkeys((m.name, m.batch) for _, m in measured))
    more = [
        middle(b / a - 1 for a, b in found) for setting in settings if (found := _pairs(runs, setting))
    ]  # fmt: skip
    missed = [abs(1 - m.accounted) for _, m in measured]
    clock = [m.overhead for _, m in measured]
    longer = _signed(more[0]) if len(more) == 1 else f"between {_signed(min(more))} and {_signed(max(more))}"
    return (
        f"With measuring, {count(len(more), 'training', 'kinds of training')} took {longer} more time (by the clock's "
        f"own account {_signed(middle(clock))} in the median), and {percent(max(missed), 1)} of an iteration at most "
        "was not accounted for."
    )


def _signed(share: float) -> str:
    return f"{100 * share:+.1f} %" if math.isfinite(share) else "–"
