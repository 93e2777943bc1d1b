"""Accuracy and time against a setting that has several values, such as the batch size or the number of threads."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from paceline.formatting import count, duration, median_of, percent, times
from paceline.measurement.measurement import Measurement
from paceline.reporting.figure import Column, Figure, Section, View, figure, section, table
from paceline.reporting.series import Series, epoch_s, median_and_ends, numeric_settings, series_by
from paceline.results.labels import grouped
from paceline.results.noise import LEAST_GAIN, differs, unrepeated
from paceline.results.run_result import RunResult, threads_of

MOST_KEYS = 3
NOTE = "Points are medians of the repetitions; whiskers show their minimum and maximum."
Metric = tuple[str, str, Callable[[RunResult], float]]  # name, unit and value

LEARNED: tuple[Metric, ...] = (
    ("test accuracy", "%", lambda run: 100 * run.accuracy),
    ("training accuracy", "%", lambda run: 100 * run.curve[-1].train_accuracy if run.curve else math.nan),
    ("test loss", "", lambda run: run.loss),
)
TIME: tuple[Metric, ...] = (
    ("epoch time", "s", epoch_s),
    ("training time", "s", lambda run: run.seconds),
    ("throughput", "samples/s", lambda run: run.samples_per_s),
)


def by_setting(runs: Sequence[RunResult], measured: Sequence[tuple[str, Measurement]]) -> Section | None:
    series = {key: found for key in numeric_settings(runs)[:MOST_KEYS] if (found := series_by(runs, key))}
    threads = _by_threads(measured)
    sentences = [setting_sentence(found, key) for key, found in series.items()] + ([threads.says] if threads else [])
    figures = [drawn for key, found in series.items() for drawn in _figures(found, key)]
    return section("by-setting", "Effect of settings", (*sentences, NOTE), blocks=(*figures, threads))


def _word(key: str) -> str:
    return {"batch": "batch size", "lr": "learning rate", "hidden": "hidden units"}.get(key, key.replace("_", " "))


def _figures(found: Sequence[Series], key: str) -> Iterator[Figure | None]:
    word, said = _word(key), setting_sentence(found, key)
    time = "Simulated time" if all(series.virtual for series in found) else "Time"
    for name, title, metrics in (("learned", "", LEARNED), ("time", time, TIME)):
        views = [view for metric in metrics for view in _views(found, word, *metric)]
        title = f"{title or ''.join(view.name for view in views[:1]).capitalize()} by {word}"
        yield figure(f"{name}-by-{key}", title, "lines", views, said or title)


def _views(
    found: Sequence[Series], word: str, name: str, unit: str, of: Callable[[RunResult], float]
) -> list[View]:  # fmt: skip
    """One view; none without values."""
    columns = ("runs", Column(word), Column(name, unit), Column("min", unit), Column("max", unit), "repetitions")
    points = [(series.name, point) for series in found for point in series.points]
    rows = [(who, point.at, *median_and_ends(map(of, point.runs)), len(point.runs)) for who, point in points]
    data = table(columns, rows)
    known = any(value is not None for value in data.values(name))
    return [View(name, data, _options(word, name, zero=unit == "s"))] if known else []


def _options(x: str, y: str, *, zero: bool) -> dict[str, Any]:
    marks = {"line": "runs", "low": "min", "high": "max", "whole": True}
    return {**marks, "x": x, "y": y, "zero": zero, "both": zero}


def setting_sentence(found: Sequence[Series], key: str) -> str:
    """About the series whose epoch time changes most between the smallest and the largest value."""
    changes = {series: _change(series) for series in found if math.isfinite(_change(series)) and _change(series) > 0}
    if not changes:
        return ""
    series = max(changes, key=lambda one: abs(math.log(changes[one])))
    first, last = series.points[0], series.points[-1]
    whose = f" of {series.name}" if series.name else ""
    word, values = _word(key), f"{first.at:g} and {last.at:g}"
    where = f"with {values} {word}" if word.endswith("s") else f"at {word} {values}"
    ends_s = [epoch_s(run) for run in first.runs], [epoch_s(run) for run in last.runs]
    if differs(*ends_s) is False:
        said = f"The epoch time{whose} is the same within noise {where}"
    else:
        clock = " of simulated time" if series.virtual else ""
        seconds = f"{duration(first.median(epoch_s))} and {duration(last.median(epoch_s))}{clock}"
        said = f"An epoch{whose} takes {seconds} {where}{unrepeated(*ends_s)}"
    if math.isfinite(first.accuracy) and math.isfinite(last.accuracy):
        equal = differs((run.accuracy for run in first.runs), (run.accuracy for run in last.runs)) is False
        ends = f"{percent(first.accuracy)} and {percent(last.accuracy)}"
        said += "; test accuracy is the same within noise" if equal else f"; test accuracy is {ends}"
    return f"{said}."


def _change(series: Series) -> float:
    first, last = (point.median(epoch_s) for point in (series.points[0], series.points[-1]))
    return last / first if first > 0 else math.nan


def _by_threads(measured: Sequence[tuple[str, Measurement]]) -> Figure | None:
    """Iterations of one network on a CPU with different numbers of threads."""
    known = sorted((threads_of(m), m.name, m.batch, m.iteration_s.median_s) for _, m in measured if threads_of(m))
    found = grouped(known, lambda each: each[1:3])
    several = {key: by for key, some in found.items() if len(by := grouped(some, lambda each: each[0])) > 1}
    if not several:
        return None
    rows, said = [], []
    for (name, batch), by in several.items():
        label = name if len({key[0] for key in several}) == len(several) else f"{name}, batch {batch}"
        by_threads = {threads: [seconds for *_, seconds in some] for threads, some in by.items()}
        medians_s, few = {threads: median_of(some) for threads, some in by_threads.items()}, min(by_threads)
        speeds = {threads: medians_s[few] / s if s > 0 else math.nan for threads, s in medians_s.items()}
        for threads, seconds in by_threads.items():
            rows.append((label, threads, *median_and_ends(seconds), speeds[threads], len(seconds)))
        best = min(medians_s, key=lambda threads: medians_s[threads])
        pair = by_threads[few], by_threads[best]
        if speeds[best] < 1 + LEAST_GAIN or differs(*pair) is False:
            said.append(f"More threads do not make an iteration of {label} faster than {count(few, 'thread')} does")
        else:
            faster = f"{times(speeds[best])} as fast as with {few}{unrepeated(*pair)}"
            takes = f"{count(best, 'thread')}: {duration(medians_s[best])}, {faster}"
            said.append(f"An iteration of {label} is fastest with {takes}")
    columns = (
        "runs", Column("threads"), Column("iteration", "s"), Column("min", "s"), Column("max", "s"),
        Column("speedup"), "repetitions",
    )  # fmt: skip
    data = table(columns, rows)
    speedup = {"line": "runs", "x": "threads", "y": "speedup", "whole": True, "zero": True}
    iteration = _options("threads", "iteration", zero=True)
    views = (View("iteration time", data, iteration), View("speedup", data, speedup))
    return Figure("by-threads", "Iteration time by threads", "lines", views, "; ".join(said) + ".")
