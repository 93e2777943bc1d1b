"""Runs that differ in their number of workers alone, as lines: what scaling is drawn and worked out from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from paceline.formatting import middle
from paceline.results.labels import REPETITION, differing, telling_keys
from paceline.results.run_result import LOCAL, ONE_PROCESS, RunResult, group_name

OF_WORKERS = ("workers", "groups", REPETITION, "threads", "step")
"""Settings that may change along a line."""
TIED = ("lr", "batch", "epochs", "schedule")
"""Those that may, too, where there is one value for each number of workers."""


@dataclass(frozen=True)
class Level:
    """All repetitions with one number of workers."""

    workers: int
    runs: tuple[RunResult, ...]

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


def scaling_lines(runs: Sequence[RunResult]) -> list[Line]:
    """Runs that differ in their workers alone, and in what must change with them."""
    usable = [run for run in runs if run.samples_per_s > 0 and run.status == "finished"]
    keys = _telling(usable)
    members: dict[tuple[str | None, ...], list[RunResult]] = {}
    for run in usable:
        members.setdefault(tuple(run.settings.get(key) for key in keys), []).append(run)
    alone = [run for run in usable if run.driver == ONE_PROCESS]
    lines = []
    for found in members.values():
        if found[0].driver == LOCAL and not any(run.workers == 1 for run in found):
            found = [*(run for run in alone if _same_work(run, found[0])), *found]
        by_workers: dict[int, list[RunResult]] = {}
        for run in found:
            by_workers.setdefault(run.workers, []).append(run)
        if len(by_workers) > 1:
            levels = tuple(Level(workers, tuple(by_workers[workers])) for workers in sorted(by_workers))
            lines.append(Line("", levels, found[-1].virtual))
    ends = [line.levels[-1].runs[-1] for line in lines]
    telling = telling_keys([run.settings for run in ends], OF_WORKERS)
    named = [group_name(end, telling) if telling else end.settings.get("strategy", end.driver) for end in ends]
    return [
        replace(line, name=name if named.count(name) == 1 else f"{name} ({place})")
        for place, (line, name) in enumerate(zip(lines, named, strict=True), 1)
    ]


def _telling(runs: Sequence[RunResult]) -> list[str]:
    """Settings that tell lines apart; a rate that follows from the number of workers does not."""
    keys = [key for key in differing([run.settings for run in runs]) if key not in OF_WORKERS]
    for key in [key for key in keys if key in TIED]:
        others = [other for other in keys if other != key]
        values: dict[tuple[str | None, ...], set[str | None]] = {}
        for run in runs:
            found = values.setdefault((str(run.workers), *(run.settings.get(other) for other in others)), set())
            found.add(run.settings.get(key))
        if all(len(found) == 1 for found in values.values()) and len(values) > 1:
            keys = others
    return keys


def _same_work(alone: RunResult, other: RunResult) -> bool:
    keys = [key for key in alone.settings if key not in (*OF_WORKERS, "driver")]
    return all(alone.settings[key] == other.settings.get(key) for key in keys)
