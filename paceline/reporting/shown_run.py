"""A run as the page sees it: trained in one process, by several, on a simulated cluster, or only timed there."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from paceline.measurement.measurement import Measurement
from paceline.reporting.reading import Records
from paceline.reporting.words import in_order, natural
from paceline.simulation.time_record import TimeRecord
from paceline.strategy.distribution import Distribution
from paceline.strategy.presets import PRESETS
from paceline.strategy.strategy import Strategy
from paceline.trace import Trace
from paceline.training.run import Run
from paceline.workload import Workload

ONE_PROCESS, LOCAL, SIMULATED, TIMED = "one process", "processes", "simulated", "time alone"
FIRST = ("network", "data", "strategy", "correction", "workers", "groups", "driver", "batch", "optimizer", "lr")
"""Settings by which runs are told apart before any other."""
REPETITION = "seed"
MEASURED = "layers measured"
"""Whether a training was measured as it went on, where some were and some were not."""
MEASURE_FOLDER = "measure"


@dataclass(frozen=True)
class CurvePoint:
    """Where a run stood at a validation."""

    epoch: float
    seconds: float
    updates: float
    train_loss: float
    test_loss: float
    train_accuracy: float
    test_accuracy: float


@dataclass(frozen=True)
class ShownRun:
    place: str
    settings: dict[str, str]
    driver: str
    workers: int
    status: str
    seconds: float
    """Of training, on the driver's own clock."""
    wall_s: float
    samples_per_s: float
    """On the driver's own clock."""
    updates: int
    accuracy: float
    loss: float
    curve: tuple[CurvePoint, ...]
    distribution: Distribution | None
    trace: Trace
    run: Run | None
    """The record, where something was trained."""
    group: str = ""
    """What it is called together with its repetitions."""
    label: str = ""
    telling: tuple[str | None, ...] = ()
    """The values that its group's name is made of."""

    @property
    def virtual(self) -> bool:
        return self.driver in (SIMULATED, TIMED)

    @property
    def labelled(self) -> bool:
        return math.isfinite(self.accuracy)


def shown_runs(records: Records) -> tuple[ShownRun, ...]:
    """All runs and simulations, told apart by the settings in which they differ."""
    found = [_of_run(place, run) for place, run in records.runs]
    measured = {str(Path(place).parent) for place, _ in records.measurements if Path(place).name == MEASURE_FOLDER}
    told = [run.place in measured for run in found]
    if any(told) and not all(told):
        settings = [{**run.settings, MEASURED: "yes" if one else "no"} for run, one in zip(found, told, strict=True)]
        found = [replace(run, settings=more) for run, more in zip(found, settings, strict=True)]
    found += [_of_simulation(place, made) for place, made in records.simulations]
    return tuple(_labelled(found))


def _of_run(place: str, run: Run) -> ShownRun:
    d = run.distribution
    driver = ONE_PROCESS if d is None else SIMULATED if d.driver == "virtual" else LOCAL
    settings = {**_workload_settings(run.workload), **(_strategy_settings(d) if d is not None else {})}
    settings |= {
        "driver": driver, "step": run.step.kind, "processor": run.conditions.device_name,
        "threads": str(run.conditions.threads), "PyTorch": run.conditions.torch, "Paceline": run.conditions.paceline,
    }  # fmt: skip
    virtual = driver == SIMULATED and d is not None
    return ShownRun(
        place=place, settings=settings, driver=driver, workers=d.workers if d else 1, status=run.status,
        seconds=d.seconds if d else run.train_s, wall_s=run.wall_s,
        samples_per_s=d.steps_per_s * run.workload.batch if d and virtual else run.samples_per_s,
        updates=run.updates, accuracy=run.test_accuracy, loss=run.test_loss, curve=_curve(run), distribution=d,
        trace=run.trace, run=run,
    )  # fmt: skip


def _of_simulation(place: str, made: TimeRecord) -> ShownRun:
    d = made.distribution
    settings = {**_workload_settings(made.workload), **_strategy_settings(d), **made.cluster, "driver": TIMED}
    return ShownRun(
        place=place, settings=settings, driver=TIMED, workers=d.workers, status="simulated", seconds=made.seconds,
        wall_s=made.wall_s, samples_per_s=made.steps_per_s * made.workload.batch, updates=d.updates,
        accuracy=math.nan, loss=math.nan, curve=(), distribution=d, trace=made.trace, run=None,
    )  # fmt: skip


def _curve(run: Run) -> tuple[CurvePoint, ...]:
    accuracy = {float(e.epoch): e.train_accuracy for e in run.epochs}
    if run.distribution is not None and run.distribution.points:
        return tuple(
            CurvePoint(
                p.epoch, p.seconds, p.updates, p.train_loss, p.test_loss, accuracy.get(p.epoch, math.nan),
                p.test_accuracy,
            )
            for p in run.distribution.points
        )  # fmt: skip
    # A record of one process does not count updates by epoch; those of whole runs are the same in each.
    each = run.updates / len(run.epochs) if run.status == "finished" and run.epochs else math.nan
    ends = accumulate(e.wall_s for e in run.epochs)
    return tuple(
        CurvePoint(e.epoch, end, each * e.epoch, e.loss, e.test_loss, e.train_accuracy, e.test_accuracy)
        for e, end in zip(run.epochs, ends, strict=True)
    )


def _workload_settings(workload: Workload) -> dict[str, str]:
    """Options of a network are settings like any other."""
    found = {f.name: _said(getattr(workload, f.name)) for f in fields(workload) if f.name not in ("threads", "options")}
    return found | {name: _said(value) for name, value in workload.options.items() if name not in found}


def _strategy_settings(d: Distribution) -> dict[str, str]:
    """Its name, and the fields in which it differs from what was published under that name."""
    usual = PRESETS.get(d.strategy.name, Strategy(d.strategy.name))
    changed = {f.name: getattr(d.strategy, f.name) for f in fields(usual)}
    changed = {k: v for k, v in changed.items() if v != getattr(usual, k) and k != "groups"}
    found = {"strategy": d.strategy.name, "workers": str(d.workers), **{k: _said(v) for k, v in changed.items()}}
    if d.strategy.groups not in (None, 1):
        found["groups"] = f"{d.strategy.groups} x {d.workers // d.strategy.groups}"
    return found


def _said(value: Any) -> str:
    if value is None:
        return "default"
    return f"{value:g}" if isinstance(value, float) else str(value)


def differing(runs: Iterable[ShownRun]) -> list[str]:
    """The settings that are not the same in all runs, the most telling first."""
    given = [run.settings for run in runs]
    keys = list(dict.fromkeys([*FIRST, *(key for settings in given for key in settings)]))
    return [key for key in keys if len({settings.get(key) for settings in given}) > 1]


def _labelled(runs: list[ShownRun]) -> list[ShownRun]:
    telling = telling_keys(runs, (REPETITION,))
    runs = sorted(runs, key=lambda run: [_place(run.settings.get(key)) for key in (*telling, REPETITION)])
    named = [replace(run, group=name_by(run, telling), telling=_values(run, telling)) for run in runs]
    of_group: dict[str, list[ShownRun]] = {}
    for run in named:
        of_group.setdefault(run.group, []).append(run)
    return [replace(run, label=_label(run, of_group[run.group])) for run in named]


def telling_keys(runs: Sequence[ShownRun], beside: tuple[str, ...]) -> list[str]:
    """As few settings as tell all groups apart: one is there if it tells apart what those before it do not."""
    keys = [key for key in differing(runs) if key not in beside]
    whole = len({_values(run, keys) for run in runs})
    telling: list[str] = []
    for key in keys:
        before = len({_values(run, telling) for run in runs})
        if before == whole:
            break
        if len({_values(run, [*telling, key]) for run in runs}) > before:
            telling.append(key)
    return telling


def _place(value: str | None) -> tuple[int, float, str]:
    """Nothing before numbers, numbers by size, words last."""
    return (0, 0.0, "") if value is None else natural(value)


def _values(run: ShownRun, keys: list[str]) -> tuple[str | None, ...]:
    return tuple(run.settings.get(key) for key in keys)


def name_by(run: ShownRun, keys: Sequence[str]) -> str:
    bare = ("network", "data", "strategy", "driver", "optimizer", "processor")
    words = []
    for key in keys:
        value = run.settings.get(key)
        if key == "strategy" and value is None:  # beside runs that have one
            words.append(run.driver)
        if value is None or (key == "correction" and value == "none"):
            continue
        if key == "workers":
            words.append(f"{value} worker{'s' * (value != '1')}")
        elif key == "groups":
            words.append(f"groups {value}")
        else:
            words.append(value if key in bare else f"{key.replace('_', ' ')} {value}")
    return " · ".join(words) or f"{run.settings['network']} on {run.settings['data']}"


def _label(run: ShownRun, group: list[ShownRun]) -> str:
    if len(group) == 1:
        return run.group
    seeds = [other.settings[REPETITION] for other in group]
    if len(set(seeds)) == len(seeds):
        return f"{run.group} · seed {run.settings[REPETITION]}"
    return f"{run.group} · {run.place}"


def groups_of(runs: Iterable[ShownRun]) -> dict[str, list[ShownRun]]:
    """Repetitions together, in the order of their first one."""
    found: dict[str, list[ShownRun]] = {}
    for run in runs:
        found.setdefault(run.group, []).append(run)
    return found


def styles(runs: Sequence[ShownRun]) -> dict[str, dict[str, list[int]]]:
    """A colour and a dash for each group whose name has several parts: there are more colours than dashes."""
    firsts = list(dict.fromkeys(run.telling[:1] for run in runs))
    rests = list(dict.fromkeys(run.telling[1:] for run in runs))
    if len(firsts) < 2 or len(rests) < 2 or max(len(firsts), len(rests)) > 8 or min(len(firsts), len(rests)) > 3:
        return {}
    places = {run.group: [rests.index(run.telling[1:]), firsts.index(run.telling[:1])] for run in runs}
    if len(firsts) > len(rests):
        places = {group: place[::-1] for group, place in places.items()}
    return {"styles": places}


def measurement_names(records: Records) -> list[tuple[str, Measurement]]:
    """Measurements with names that tell them apart: as short as that allows, with their places if nothing else does."""
    found = sorted(records.measurements, key=lambda entry: (entry[1].name, entry[1].batch, _threads(entry[1])))
    told = [
        (m.name, f"batch {m.batch}", m.device_name, m.step, f"{_threads(m)} threads", m.conditions.get("data", ""))
        for _, m in found
    ]
    kept = [0]
    for place in range(1, len(told[0]) if told else 0):
        before = {tuple(words[i] for i in kept) for words in told}
        if len({tuple(words[i] for i in (*kept, place)) for words in told}) > len(before):
            kept.append(place)
    names = [", ".join(words[i] for i in kept) for words in told]
    return [
        (f"{name}, {_short_place(place)}" if names.count(name) > 1 else name, m)
        for name, (place, m) in zip(names, found, strict=True)
    ]


def _short_place(place: str) -> str:
    """Of a run of an experiment, which repetition it is; its directory's name ends in a hash and that number."""
    run = re.search(r"(^|[-/])[0-9a-f]{10}-([0-9]+)(/measure)?$", place)
    return f"repetition {run.group(2)}" if run else place


def _threads(m: Measurement) -> int:
    told = m.conditions.get("threads", "")
    return int(told) if told.isdigit() else 0


def values_of(runs: Iterable[ShownRun], key: str) -> list[str]:
    return in_order(run.settings[key] for run in runs if key in run.settings)
