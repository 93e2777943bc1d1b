"""What a setting changes: accuracy and time against a number that differs between runs, as the batch size."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.formatting import as_number, count, duration, middle, percent
from paceline.measurement.measurement import Measurement
from paceline.reporting.figure import Column, Figure, Section, Table, View, table
from paceline.results.labels import REPETITION, differing, telling_keys
from paceline.results.run_result import LOCAL, ONE_PROCESS, RunResult, group_name

FOLLOWING = ("threads", "step", "processor", REPETITION)
"""What is chosen by the program, as it suits the setting."""
OF_WORKERS = ("workers", "groups")
NOT_ASKED = ("top", "epochs", "PyTorch", "Paceline")
MOST_KEYS = 3
LEAST_VALUES = 3


@dataclass(frozen=True)
class Level:
    """All repetitions with one value."""

    at: float
    runs: tuple[RunResult, ...]

    def middle(self, of: Callable[[RunResult], float]) -> float:
        return middle(of(run) for run in self.runs)


@dataclass(frozen=True)
class Line:
    """Runs that differ in one setting alone."""

    name: str
    levels: tuple[Level, ...]

    @property
    def first(self) -> RunResult:
        return self.levels[0].runs[0]


def numeric_settings(runs: Sequence[RunResult]) -> list[str]:
    """Settings, numbers wherever they are known, that have at least three values; not how many workers there are."""
    found = []
    for key in differing([run.settings for run in runs]):
        values = {as_number(run.settings[key]) for run in runs if run.settings.get(key) not in (None, "default")}
        numbers = all(not isinstance(value, str) for value in values) and len(values) >= LEAST_VALUES
        if numbers and key not in (*FOLLOWING, *OF_WORKERS, *NOT_ASKED):
            found.append(key)
    return found


def lines_against(runs: Sequence[RunResult], key: str) -> list[Line]:
    usable = [run for run in runs if run.settings.get(key) not in (None, "default")]
    others = [k for k in differing([run.settings for run in usable]) if k not in (key, *FOLLOWING)]
    members: dict[tuple[str | None, ...], dict[float, list[RunResult]]] = {}
    for run in usable:
        levels = members.setdefault(tuple(run.settings.get(k) for k in others), {})
        levels.setdefault(float(run.settings[key]), []).append(run)
    found = [levels for levels in members.values() if len(levels) >= LEAST_VALUES]
    firsts = [next(iter(levels.values()))[0] for levels in found]
    telling = telling_keys([run.settings for run in firsts], (key, *FOLLOWING))
    return [
        Line(group_name(first, telling), tuple(Level(at, tuple(levels[at])) for at in sorted(levels)))
        for first, levels in zip(firsts, found, strict=True)
    ]


def by_setting(runs: Sequence[RunResult], measured: Sequence[tuple[str, Measurement]]) -> Section | None:
    figures: list[Figure] = []
    sentences: list[str] = []
    for key in numeric_settings(runs)[:MOST_KEYS]:
        if lines := lines_against(runs, key):
            figures += _figures(lines, key)
            sentences.append(_sentence(lines, key))
    if threads := _by_threads(measured):
        figures.append(threads)
        sentences.append(threads.says)
    if not figures:
        return None
    note = "Points are medians of the repetitions, whiskers their least and greatest."
    return Section("by-setting", "What a setting changes", (*sentences, note), blocks=tuple(figures))


def _word(key: str) -> str:
    return {"batch": "batch size", "lr": "learning rate", "hidden": "hidden units"}.get(key, key.replace("_", " "))


def _figures(lines: Sequence[Line], key: str) -> list[Figure]:
    """How accurate, and how long it took."""
    word = _word(key)
    learnt: list[tuple[str, str, Callable[[RunResult], float]]] = [
        ("test accuracy", "%", lambda run: 100 * run.accuracy),
        ("training accuracy", "%", lambda run: 100 * run.curve[-1].train_accuracy if run.curve else math.nan),
        ("test loss", "", lambda run: run.loss),
    ]
    taken: list[tuple[str, str, Callable[[RunResult], float]]] = [
        ("time of an epoch", "s", epoch_s),
        ("time of the whole training", "s", lambda run: run.seconds),
        ("samples a second", "", lambda run: run.samples_per_s),
    ]
    made = []
    for name, what, asked in (("learnt", "How well it learned", learnt), ("taken", "Time", taken)):
        views = [view for told, unit, of in asked if (view := _view(lines, word, told, unit, of)) is not None]
        if views:
            title = f"{views[0].name.capitalize() if name == 'learnt' else what} against {word}"
            made.append(Figure(f"{name}-by-{key}", title, "lines", tuple(views), _sentence(lines, key)))
    return made


def epoch_s(run: RunResult) -> float:
    """Of training alone, on the driver's own clock: the median, where each epoch was timed by itself."""
    if run.run is None or not run.curve:
        return math.nan
    timed: list[float] = []
    if run.driver == ONE_PROCESS:
        timed = [span.duration_s for span in run.trace.spans if span.what == "train"]
    elif run.driver == LOCAL:
        timed = [epoch.wall_s for epoch in run.run.epochs]
    return middle(timed) if timed else run.seconds / len(run.curve)


def _view(
    lines: Sequence[Line], word: str, told: str, unit: str, of: Callable[[RunResult], float]
) -> View | None:  # fmt: skip
    columns = ("runs", Column(word), Column(told, unit), Column("least", unit), Column("greatest", unit), "repetitions")
    rows = []
    for line in lines:
        for level in line.levels:
            values = [value for run in level.runs if math.isfinite(value := of(run))] or [math.nan]
            rows.append((line.name, level.at, middle(values), min(values), max(values), len(level.runs)))
    data = table(columns, rows)
    if all(value is None for value in data.values(told)):
        return None
    return View(told, data, _options(word, told, zero=unit == "s"))


def _options(x: str, y: str, *, zero: bool) -> dict[str, Any]:
    marks = {"line": "runs", "group": "runs", "low": "least", "high": "greatest", "whole": True}
    return {**marks, "x": x, "y": y, "zero": zero, "both": zero}


def _sentence(lines: Sequence[Line], key: str) -> str:
    """What going from the least to the greatest value did to the line that it changed most."""

    def change(line: Line) -> float:
        first, last = (level.middle(epoch_s) for level in (line.levels[0], line.levels[-1]))
        return last / first if first > 0 else math.nan

    known = [line for line in lines if math.isfinite(change(line))]
    if not known:
        return ""
    line = max(known, key=lambda line: abs(math.log(max(change(line), 1e-9))))
    first, last = line.levels[0], line.levels[-1]
    said = f"From {_word(key)} {first.at:g} to {last.at:g}, an epoch of {line.name or 'it'} takes "
    said += f"{duration(last.middle(epoch_s))} instead of {duration(first.middle(epoch_s))}"
    before, after = (level.middle(lambda run: run.accuracy) for level in (first, last))
    if math.isfinite(before) and math.isfinite(after):
        said += f", and it ends with {percent(after, 1)} test accuracy instead of {percent(before, 1)}"
    return f"{said}."


def _by_threads(measured: Sequence[tuple[str, Measurement]]) -> Figure | None:
    """Iterations of one network on a processor, with more and more threads."""
    found: dict[tuple[str, int], list[tuple[int, Measurement]]] = {}
    for _, m in measured:
        if m.conditions.get("threads", "").isdigit():
            found.setdefault((m.name, m.batch), []).append((int(m.conditions["threads"]), m))
    several = {key: sorted(some, key=lambda e: e[0]) for key, some in found.items() if len({t for t, _ in some}) > 1}
    if not several:
        return None
    rows, said = [], []
    for (name, batch), some in several.items():
        label = name if len({key[0] for key in several}) == len(several) else f"{name}, batch {batch}"
        alone_s = middle(m.iteration_s.median_s for threads, m in some if threads == some[0][0])
        by_threads = {threads: [m for t, m in some if t == threads] for threads, _ in some}
        for threads, ms in by_threads.items():
            seconds = [m.iteration_s.median_s for m in ms]
            speed = alone_s / middle(seconds) if middle(seconds) > 0 else math.nan
            rows.append((label, threads, middle(seconds), min(seconds), max(seconds), speed, len(ms)))
        quickest = min(by_threads, key=lambda t: middle(m.iteration_s.median_s for m in by_threads[t]))
        best_s = middle(m.iteration_s.median_s for m in by_threads[quickest])
        said.append(
            f"A batch of {batch} of {name} is fastest with {count(quickest, 'thread')}: {duration(best_s)}, "
            f"{alone_s / best_s:.2f} times as fast as with {some[0][0]}"
        )
    columns = (
        "runs", Column("threads"), Column("iteration", "s"), Column("least", "s"), Column("greatest", "s"),
        Column("speed-up"), "repetitions",
    )  # fmt: skip
    data: Table = table(columns, rows)
    seconds_view = View("time of an iteration", data, _options("threads", "iteration", zero=True))
    faster = {"line": "runs", "group": "runs", "x": "threads", "y": "speed-up", "whole": True, "zero": True}
    views = (seconds_view, View("speed-up", data, faster))
    return Figure("by-threads", "Iteration against threads", "lines", views, "; ".join(said) + ".")
