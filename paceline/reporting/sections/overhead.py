"""Overhead of measuring: the same trainings with and without the layer clock, repetitions together."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.formatting import count, median_of, percent, signed_percent
from paceline.measurement.measurement import Measurement
from paceline.reporting.figure import Cell, Column, Figure, Section, TableBlock, View, section, table
from paceline.reporting.series import median_and_ends
from paceline.results.noise import differs
from paceline.results.run_result import MEASURED, RunResult

Setting = tuple[str, int]  # network and batch size
NOTE = (
    "Whole trainings with the same seed, one with the layer clock and one without; other load on the machine affects "
    "both. The clock's own estimate compares neighbouring iterations of one training. Unattributed is the part of an "
    "iteration that no layer or part accounts for before scaling; below 0, something was counted twice."
)


def overhead(measured: Sequence[tuple[str, Measurement]], runs: Sequence[RunResult]) -> Section | None:
    """None unless some trainings ran both with and without measuring."""
    pairs = measured_pairs(measured, runs)
    if not pairs:
        return None
    columns = (
        "training", "repetitions", Column("without", "s"), Column("with", "s"), Column("difference", "%"),
        Column("min", "%"), Column("max", "%"), Column("overhead by the clock", "%"), Column("unattributed", "%"),
        Column("unattributed, min", "%"), Column("unattributed, max", "%"),
    )  # fmt: skip
    rows: list[tuple[Cell, ...]] = []
    for (name, batch), found in pairs.items():
        ms = [m for _, m in measured if (m.name, m.batch) == (name, batch)]
        more = median_and_ends(100 * (with_s / without_s - 1) for without_s, with_s in found)
        missed = median_and_ends(100 * (1 - m.accounted) for m in ms)
        rows.append((
            f"{name}, batch {batch}", len(ms), median_of(a for a, _ in found), median_of(b for _, b in found),
            *more, 100 * median_of(m.overhead for m in ms), *missed,
        ))  # fmt: skip
    data = table(columns, rows)
    view = View("", data, {"category": "training", "values": ["without", "with"]})
    says = overhead_sentence(measured, runs)
    figure = Figure("with-and-without", "Training time with and without measuring", "bars", (view,), says, wide=True)
    listing = TableBlock("overhead-rows", "With and without measuring", data, NOTE)
    sentences = (says, unattributed_sentence(measured))
    return section("overhead", "Overhead of measuring", sentences, blocks=(figure, listing))


def measured_pairs(
    measured: Sequence[tuple[str, Measurement]], runs: Sequence[RunResult]
) -> dict[Setting, list[tuple[float, float]]]:
    """Training seconds without and with measuring, for runs with otherwise equal settings."""
    seconds: dict[str, dict[frozenset[tuple[str, str]], float]] = {"False": {}, "True": {}}
    for run in runs:
        if MEASURED in run.settings and run.seconds > 0:
            others = frozenset((key, value) for key, value in run.settings.items() if key != MEASURED)
            seconds[run.settings[MEASURED]][others] = run.seconds
    without, with_it = seconds["False"], seconds["True"]
    pairs: dict[Setting, list[tuple[float, float]]] = {}
    for name, batch in dict.fromkeys((m.name, m.batch) for _, m in measured):
        same = [key for key in without if key in with_it and {("network", name), ("batch", str(batch))} <= key]
        if same:
            pairs[name, batch] = [(without[key], with_it[key]) for key in same]
    return pairs


def overhead_sentence(measured: Sequence[tuple[str, Measurement]], runs: Sequence[RunResult]) -> str:
    pairs = measured_pairs(measured, runs)
    changed = {setting: found for setting, found in pairs.items() if differs(*zip(*found, strict=True))}
    slower = {setting: median_of(b / a - 1 for a, b in found) for setting, found in changed.items()}
    clock = signed_percent(median_of(m.overhead for _, m in measured))
    if all(len(found) < 2 for found in pairs.values()):
        return f"By the clock's own estimate, measuring changed iterations by {clock}; trainings were not repeated."
    if not slower:
        return (
            f"Measuring every layer did not slow training down beyond noise in any of {count(len(pairs), 'setting')} "
            f"({clock} by the clock's own estimate)."
        )
    worst = max(slower, key=lambda setting: slower[setting])
    return (
        f"Measuring changed the training time beyond noise in {len(slower)} of {count(len(pairs), 'setting')}, "
        f"by {signed_percent(slower[worst])} for {worst[0]} at batch size {worst[1]}."
    )


def unattributed_sentence(measured: Sequence[tuple[str, Measurement]]) -> str:
    missed = [abs(1 - m.accounted) for _, m in measured]
    if len(missed) < 3:
        return f"At most {percent(max(missed))} of an iteration could not be attributed to a layer or part."
    return (
        f"In half of {len(missed)} measurements, at most {percent(median_of(missed))} of an iteration could not be "
        f"attributed to a layer or part; in the worst, {percent(max(missed))}."
    )
