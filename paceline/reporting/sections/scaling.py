"""Time, throughput and efficiency against the number of workers, where runs differ in it.

Efficiency is throughput over that of the smallest number of workers times how many times as many they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from paceline.formatting import count, duration, listed, middle, percent, times
from paceline.reporting.figure import Cell, Column, Figure, Section, Table, View, table
from paceline.reporting.reaching import seconds_all_to, seconds_all_to_loss, target_accuracy, target_loss
from paceline.reporting.sections.doubling import doubling
from paceline.reporting.sections.scaling_lines import Line, scaling_lines
from paceline.results.comparison_rows import PublishedRow
from paceline.results.run_result import RunResult

Made = tuple[str, str, dict[str, str], dict[str, Any], str]
"""A figure: id, title, columns by the names of its views, options, what it says."""


def scaling(runs: Sequence[RunResult], published: Sequence[PublishedRow] = ()) -> Section | None:
    lines = scaling_lines(runs)
    if not lines:
        return None
    every = [run for line in lines for level in line.levels for run in level.runs]
    target, loss = target_accuracy(every), target_loss(every)
    data = _table(lines, target, loss)
    both = {"both": True}
    made: list[Made] = [
        ("throughput", "Samples a second", {"": "samples a second"}, {"ideal": "ideal", **both}, _says(lines)),
        ("efficiency", "Efficiency", {"": "efficiency"}, {}, _says(lines)),
        ("time-by-workers", "Time", {"the whole training": "time", "an epoch": "epoch"}, both, _says_time(lines)),
    ]
    if _told(data, "test accuracy"):
        made.append(("accuracy-by-workers", "Test accuracy", {"": "test accuracy"}, {}, _says_accuracy(lines)))
    if _told(data, "time to loss") and _comparable(lines, loss):
        title = f"Time to a test loss of {loss:.2g}"
        made.insert(0, ("time-to-loss", title, {"": "time to loss"}, both, f"{title}, by number of workers."))
    if _told(data, "time to accuracy"):
        title = f"Time to {percent(target, 0)} test accuracy"
        made.insert(0, ("time-to-accuracy", title, {"": "time to accuracy"}, both, _says_reached(lines, target)))
    figures = []
    for name, title, columns, more, says in made:
        told = {view: y for view, y in columns.items() if _told(data, y)} or columns
        views = tuple(View(view, data, _options(y, more)) for view, y in told.items())
        missing = name.startswith("time-to-") and any(None in data.values(y) for y in told.values())
        note = "No point: fewer than half of the repetitions get there." if missing else ""
        figures.append(Figure(name, title, "lines", views, says, note))
    if saved := doubling(lines, loss, published):
        figures.append(saved)
    least = listed(sorted({line.levels[0].workers for line in lines}))
    note = f"Efficiency is the speed-up over {least} worker{'s' * (least != '1')}, divided by how many times as many "
    note += "workers there are. Points are medians of the repetitions, whiskers their least and greatest."
    clocks = {line.virtual for line in lines}
    if clocks == {True}:
        note += " All of it is in simulated time."
    elif True in clocks:
        note += " Some lines are in simulated time, as their names say."
    return Section("scaling", "How it scales", (scaling_sentence(lines), note), blocks=tuple(figures))


def _told(data: Table, column: str) -> bool:
    """Whether there is more than one figure to draw."""
    return sum(value is not None for value in data.values(column)) > 1


def _comparable(lines: Sequence[Line], loss: float) -> bool:
    """Whether a loss means the same to all: the runs end near each other, and there are several numbers of workers."""
    losses = [run.loss for line in lines for level in line.levels for run in level.runs if math.isfinite(run.loss)]
    return max(len(line.levels) for line in lines) > 2 and loss <= 3 * min(losses, default=0.0)


def _options(y: str, more: dict[str, Any]) -> dict[str, Any]:
    ends = {"low": f"{y}, least", "high": f"{y}, greatest"}
    return {"line": "runs", "group": "runs", "x": "workers", "y": y, **ends, "whole": True, "zero": True, **more}


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


def _says_accuracy(lines: Sequence[Line]) -> str:
    ends = [(line, line.levels[-1]) for line in lines[:6]]
    said = [f"{line.name}: {percent(end.accuracy, 1)} with {end.workers}" for line, end in ends]
    return "Test accuracy at the most workers. " + "; ".join(said) + "."


def _spread(name: str, unit: str = "") -> tuple[Column, Column, Column]:
    return Column(name, unit), Column(f"{name}, least", unit), Column(f"{name}, greatest", unit)


def _table(lines: Sequence[Line], target: float, loss: float) -> Table:
    columns = (
        "runs", "workers", "repetitions", *_spread("samples a second"), Column("ideal"), *_spread("efficiency", "%"),
        *_spread("time", "s"), *_spread("epoch", "s"), *_spread("test accuracy", "%"),
        *_spread("time to accuracy", "s"), *_spread("time to loss", "s"),
    )  # fmt: skip
    rows: list[tuple[Cell, ...]] = []
    for line in lines:
        base = line.levels[0]
        for level in line.levels:
            speeds = [run.samples_per_s for run in level.runs]
            ideal = base.samples_per_s * level.workers / base.workers
            figures = (
                [run.seconds for run in level.runs],
                [run.seconds / len(run.curve) for run in level.runs if run.curve],
                [100 * run.accuracy for run in level.runs if run.labelled],
                seconds_all_to(level.runs, target),
                seconds_all_to_loss(level.runs, loss),
            )
            rows.append((
                line.name, level.workers, len(level.runs), *_ends(speeds), ideal,
                *(100 * speed / ideal for speed in _ends(speeds)), *(end for some in figures for end in _ends(some)),
            ))  # fmt: skip
    return table(columns, rows)


def _ends(values: Sequence[float]) -> tuple[float, float, float]:
    """The median, the least and the greatest."""
    return (middle(values), min(values), max(values)) if values else (math.nan,) * 3
