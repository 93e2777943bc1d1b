"""Time, throughput and efficiency against the number of workers, where runs differ in it.

Efficiency is throughput over that of the smallest number of workers times how many times as many they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from paceline.report.figure import Column, Figure, Section, Table, View, table
from paceline.report.reaching import seconds_all_to, target_accuracy
from paceline.report.shown_run import LOCAL, ONE_PROCESS, REPETITION, ShownRun, differing, name_by, telling_keys
from paceline.report.words import count, duration, listed, middle, percent, times

OF_WORKERS = ("workers", "groups", REPETITION, "threads", "step")
"""Settings that may change along a line."""


@dataclass(frozen=True)
class Level:
    """All repetitions with one number of workers."""

    workers: int
    runs: tuple[ShownRun, ...]

    @property
    def samples_per_s(self) -> float:
        return middle(run.samples_per_s for run in self.runs)

    @property
    def seconds(self) -> float:
        return middle(run.seconds for run in self.runs)

    @property
    def accuracy(self) -> float:
        return middle(run.accuracy for run in self.runs)


@dataclass(frozen=True)
class Line:
    name: str
    levels: tuple[Level, ...]
    virtual: bool

    def speed_up(self, level: Level) -> float:
        base = self.levels[0].samples_per_s
        return level.samples_per_s / base if base > 0 else math.nan

    def efficiency(self, level: Level) -> float:
        return self.speed_up(level) * self.levels[0].workers / level.workers

    @property
    def best(self) -> Level:
        known = [level for level in self.levels if math.isfinite(level.samples_per_s)]
        return max(known or self.levels, key=lambda level: level.samples_per_s)


def scaling_lines(runs: Sequence[ShownRun]) -> list[Line]:
    """Runs that differ in their workers alone, and in what must change with them."""
    usable = [run for run in runs if run.samples_per_s > 0 and run.status in ("finished", "simulated")]
    keys = [key for key in differing(usable) if key not in OF_WORKERS]
    members: dict[tuple[str | None, ...], list[ShownRun]] = {}
    for run in usable:
        members.setdefault(tuple(run.settings.get(key) for key in keys), []).append(run)
    alone = [run for run in usable if run.driver == ONE_PROCESS]
    lines = []
    for found in members.values():
        if found[0].driver == LOCAL and not any(run.workers == 1 for run in found):
            found = [*(run for run in alone if _same_work(run, found[0])), *found]
        by_workers: dict[int, list[ShownRun]] = {}
        for run in found:
            by_workers.setdefault(run.workers, []).append(run)
        if len(by_workers) > 1:
            levels = tuple(Level(workers, tuple(by_workers[workers])) for workers in sorted(by_workers))
            lines.append(Line("", levels, found[-1].virtual))
    ends = [line.levels[-1].runs[-1] for line in lines]
    telling = telling_keys(ends, OF_WORKERS)
    named = [name_by(end, telling) if telling else end.settings.get("strategy", end.driver) for end in ends]
    return [
        replace(line, name=name if named.count(name) == 1 else f"{name} ({place})")
        for place, (line, name) in enumerate(zip(lines, named, strict=True), 1)
    ]


def _same_work(alone: ShownRun, other: ShownRun) -> bool:
    keys = [key for key in alone.settings if key not in (*OF_WORKERS, "driver")]
    return all(alone.settings[key] == other.settings.get(key) for key in keys)


def scaling(runs: Sequence[ShownRun]) -> Section | None:
    lines = scaling_lines(runs)
    if not lines:
        return None
    target = target_accuracy([run for line in lines for level in line.levels for run in level.runs])
    data = _table(lines, target)
    made: tuple[tuple[str, str, str, dict[str, Any], str], ...] = (
        ("throughput", "Samples a second", "samples a second", {"ideal": "ideal", "both": True}, _says(lines)),
        ("efficiency", "Efficiency", "efficiency", {}, _says(lines)),
        ("time-by-workers", "Time of the whole training", "time", {"both": True}, _says_time(lines)),
    )
    figures = []
    if sum(seconds is not None for seconds in data.values("time to accuracy")) > 1:
        title, more = f"Time to {percent(target, 0)} test accuracy", {"both": True}
        says = _says_reached(lines, target)
        made = (("time-to-accuracy", title, "time to accuracy", more, says), *made)
    for name, title, y, more, says in made:
        options = {
            "line": "runs", "group": "runs", "x": "workers", "y": y, "low": f"{y}, least", "high": f"{y}, greatest",
            "whole": True, "zero": True, **more,
        }  # fmt: skip
        note = "No point: fewer than half of the repetitions get there." if name == "time-to-accuracy" else ""
        figures.append(Figure(name, title, "lines", (View("", data, options),), says, note))
    least = listed(sorted({line.levels[0].workers for line in lines}))
    note = f"Efficiency is the speed-up over {least} worker{'s' * (least != '1')}, divided by how many times as many "
    note += "workers there are. Points are medians of the repetitions, whiskers their least and greatest."
    clocks = {line.virtual for line in lines}
    if clocks == {True}:
        note += " All of it is in simulated time."
    elif True in clocks:
        note += " Some lines are in simulated time, as their names say."
    return Section("scaling", "How it scales", (scaling_sentence(lines), note), blocks=tuple(figures))


def scaling_sentence(lines: Sequence[Line]) -> str:
    line = max(lines, key=lambda line: _or_least(line.speed_up(line.best)))
    level, base = line.best, line.levels[0]
    if level is base:
        return f"More workers do not help: {count(base.workers, 'worker')} with {line.name} are the fastest."
    speed = times(line.speed_up(level))
    said = f"With {count(level.workers, 'worker')}, {line.name} trains {speed} as fast as with {base.workers}"
    said += f" ({percent(line.efficiency(level), 0)} efficiency)"
    if math.isfinite(level.accuracy) and math.isfinite(base.accuracy):
        said += f" and reaches {percent(level.accuracy, 1)} test accuracy instead of {percent(base.accuracy, 1)}"
    return said + (", in simulated time." if line.virtual else ".")


def _or_least(value: float) -> float:
    return value if math.isfinite(value) else -math.inf


def _says(lines: Sequence[Line]) -> str:
    said = [
        f"{line.name}: {times(line.speed_up(line.levels[-1]))} with {line.levels[-1].workers}" for line in lines[:6]
    ]
    return "Speed-up at the most workers. " + "; ".join(said) + "."


def _says_reached(lines: Sequence[Line], target: float) -> str:
    said = []
    for line in lines[:6]:
        reached = [(level.workers, middle(s)) for level in line.levels if (s := seconds_all_to(level.runs, target))]
        least = min(reached, key=lambda entry: entry[1], default=None)
        said.append(f"{line.name}: " + ("never" if least is None else f"{duration(least[1])} with {least[0]} at best"))
    return "; ".join(said) + "."


def _says_time(lines: Sequence[Line]) -> str:
    said = [f"{line.name}: {duration(line.levels[-1].seconds)} with {line.levels[-1].workers}" for line in lines[:6]]
    return "Time at the most workers. " + "; ".join(said) + "."


def _table(lines: Sequence[Line], target: float) -> Table:
    columns = (
        "runs", "workers", "repetitions", Column("samples a second"), Column("samples a second, least"),
        Column("samples a second, greatest"), Column("ideal"), Column("efficiency", "%"),
        Column("efficiency, least", "%"), Column("efficiency, greatest", "%"), Column("time", "s"),
        Column("time, least", "s"), Column("time, greatest", "s"), Column("test accuracy", "%"),
        Column("time to accuracy", "s"), Column("time to accuracy, least", "s"),
        Column("time to accuracy, greatest", "s"),
    )  # fmt: skip
    rows = []
    for line in lines:
        base = line.levels[0]
        for level in line.levels:
            speeds = [run.samples_per_s for run in level.runs]
            ideal = base.samples_per_s * level.workers / base.workers
            seconds = [run.seconds for run in level.runs]
            reached = seconds_all_to(level.runs, target) or [math.nan]
            rows.append((
                line.name, level.workers, len(level.runs), level.samples_per_s, min(speeds), max(speeds), ideal,
                100 * line.efficiency(level), 100 * min(speeds) / ideal, 100 * max(speeds) / ideal, level.seconds,
                min(seconds), max(seconds), 100 * level.accuracy, middle(reached), min(reached), max(reached),
            ))  # fmt: skip
    return table(columns, rows)
