"""A row of the results table with its record, as used by pages and studies."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, takewhile
from pathlib import Path

from paceline.formatting import in_order
from paceline.measurement.measurement import Measurement
from paceline.results.labels import REPETITION, grouped, label_by, place_in_order, setting_text, telling_keys, values
from paceline.results.records import Records, Skipped
from paceline.results.run_row import NOT_SETTINGS, WORKLOAD, Row, RunRecord, row_of
from paceline.simulation.timing import TimeRecord
from paceline.strategy.distribution import Distribution
from paceline.trace import Trace
from paceline.training.run import Run

ONE_PROCESS, LOCAL, SIMULATED, TIMED = "one process", "processes", "simulated", "simulated time only"
SHOWN_CONDITIONS = {
    "step": "step", "device_name": "processor", "threads_used": "threads", "torch": "PyTorch", "paceline": "Paceline",
}  # fmt: skip
WORTH_RANKING = 0.5
"""Runs below this share of the best accuracy on the same data are left out of rankings."""
MEASURED = "measure"  # the setting of a measured training, and the folder with its measurement


@dataclass(frozen=True)
class CurvePoint:
    """The state of a run at a validation."""

    epoch: float
    seconds: float
    updates: float
    train_loss: float
    test_loss: float
    train_accuracy: float
    test_accuracy: float
    test_metric: float = math.nan


@dataclass(frozen=True, eq=False)
class RunResult:
    row: Row
    place: str
    record: RunRecord | None = None  # None: it failed, or is known only from a results.csv
    group: str = ""  # name that it shares with its repetitions
    label: str = ""
    telling: tuple[str | None, ...] = ()  # values that make up the group's name
    ranked: bool = True
    """Whether it may be called best or fastest: it finished, and is not far below the best run on its data."""

    @cached_property
    def settings(self) -> dict[str, str]:
        """Settings of workload, network, strategy and machine, as text."""
        row = self.row
        found = {
            key: setting_text(value)
            for key, value in row.items()
            if key not in NOT_SETTINGS and key not in ("options", "threads") and (value is not None or key in WORKLOAD)
        }
        options = json.loads(row.get("options") or "{}")
        found = {key.removeprefix("options."): value for key, value in found.items()}
        found |= {name: setting_text(value) for name, value in options.items() if name not in found}
        found |= {name: str(row[key]) for key, name in SHOWN_CONDITIONS.items() if row.get(key) is not None}
        if self.driver == ONE_PROCESS:
            found = {key: value for key, value in found.items() if key not in ("strategy", "workers")}
        return found | {"driver": self.driver}

    @property
    def driver(self) -> str:
        if self.row["kind"] == "simulate":
            return TIMED
        if self.row.get("strategy") in (None, "none"):
            return ONE_PROCESS
        return SIMULATED if self.row.get("driver") == "virtual" else LOCAL

    @property
    def virtual(self) -> bool:
        return self.driver in (SIMULATED, TIMED)

    def metric(self, name: str) -> float:
        value = self.row.get(name)
        return math.nan if value is None else float(value)

    @property
    def workers(self) -> int:
        return int(self.row["workers"])

    @property
    def status(self) -> str:
        return str(self.row["status"])

    @property
    def seconds(self) -> float:
        return self.metric("virtual_s" if self.virtual else "train_s")

    @property
    def wall_s(self) -> float:
        return self.metric("wall_s")

    @property
    def samples_per_s(self) -> float:
        if self.virtual:
            return self.metric("steps_per_s") * int(self.row["batch"])
        return self.metric("samples_per_s")

    @property
    def updates(self) -> int:
        return int(self.row.get("updates") or 0)

    @property
    def accuracy(self) -> float:
        return self.metric("test_accuracy")

    @property
    def loss(self) -> float:
        return self.metric("test_loss")

    @property
    def metric_value(self) -> float:
        """The metric of the workload or of its network, or NaN."""
        return self.metric("test_metric")

    @property
    def metric_name(self) -> str:
        return (self.run.metric if self.run is not None else "") or "metric"

    @property
    def has_network_metric(self) -> bool:
        """Whether the metric is that of the network, where lower is better."""
        brought = self.run is not None and not self.run.workload.metric
        return brought and math.isfinite(self.metric_value)

    @property
    def labelled(self) -> bool:
        return math.isfinite(self.accuracy)

    @property
    def run(self) -> Run | None:
        return self.record if isinstance(self.record, Run) else None

    @property
    def distribution(self) -> Distribution | None:
        return self.record.distribution if isinstance(self.record, Run | TimeRecord) else None

    @property
    def trace(self) -> Trace:
        """On the clock of the driver."""
        if isinstance(self.record, Run):
            return self.record.timeline
        return self.record.trace if isinstance(self.record, TimeRecord) else Trace()

    @cached_property
    def curve(self) -> tuple[CurvePoint, ...]:
        return _curve(self.run) if self.run is not None else ()


def all_results(records: Records) -> list[RunResult]:
    """All runs, simulations, measurements, evaluations and feedings, and failed runs."""
    outcomes, runs = dict(records.outcomes), {place for place, _ in records.runs}
    within = {place: m for place, m in records.measurements if not runs.isdisjoint(map(str, Path(place).parents))}
    alone: list[tuple[str, RunRecord]] = [entry for entry in records.measurements if entry[0] not in within]
    found: list[tuple[str, RunRecord]] = [*records.runs, *records.simulations, *alone, *records.feedings]
    found += [entry for entry in records.evaluations if entry[0] not in runs]
    made = []
    for place, record in found:
        measured = within.get(str(Path(place) / MEASURED))
        made.append(RunResult(row_of(record, records.directory(place), outcomes.get(place), measured), place, record))
    known = {result.place for result in made}
    for place, outcome in outcomes.items():
        if place in known:
            continue
        if outcome.status != "finished":
            made.append(RunResult(row_of(None, records.directory(place), outcome), place))
        elif not any(skipped.place.startswith(f"{place}/") for skipped in records.skipped):
            records.skipped.append(Skipped(place, "its record is missing"))
    return made + [RunResult(row, place) for place, row in records.rows]


def run_results(records: Records) -> tuple[RunResult, ...]:
    """All trainings and simulations, labelled by the settings in which they differ."""
    found = [run for run in all_results(records) if run.row["kind"] in ("train", "simulate")]
    runs = [run for run in found if run.status != "failed"]
    telling = telling_keys([run.settings for run in runs])
    runs = sorted(runs, key=lambda run: place_in_order(run.settings, (*telling, REPETITION)))
    named = [replace(run, group=group_name(run, telling), telling=values(run.settings, telling)) for run in runs]
    groups = groups_of(named)
    scored = [run for run in named if run.status == "finished" and run.labelled]
    on_data = grouped(scored, lambda run: run.settings["data"])
    best = {data: max(run.accuracy for run in some) for data, some in on_data.items()}
    return tuple(replace(run, label=_label(run, groups[run.group]), ranked=_may_rank(run, best)) for run in named)


def _may_rank(run: RunResult, best: Mapping[str, float]) -> bool:
    """A run that did not learn is not ranked, however fast it is."""
    if run.status != "finished" or (run.run is not None and not math.isfinite(run.loss)):
        return False
    return not run.labelled or run.accuracy >= WORTH_RANKING * best[run.settings["data"]]


def group_name(run: RunResult, keys: Sequence[str]) -> str:
    return label_by(run.settings, keys) or f"{run.settings['network']} on {run.settings['data']}"


def _label(run: RunResult, group: list[RunResult]) -> str:
    if len(group) == 1:
        return run.group
    seeds = [other.settings[REPETITION] for other in group]
    if len(set(seeds)) == len(seeds):
        return f"{run.group} · seed {run.settings[REPETITION]}"
    return f"{run.group} · {run.place}"


def groups_of(runs: Iterable[RunResult]) -> dict[str, list[RunResult]]:
    """Runs by group, in order of first appearance."""
    return grouped(runs, lambda run: run.group)


def values_of(runs: Iterable[RunResult], key: str) -> list[str]:
    return in_order(run.settings[key] for run in runs if key in run.settings)


def _curve(run: Run) -> tuple[CurvePoint, ...]:
    accuracy = {float(e.epoch): e.train_accuracy for e in run.epochs}
    if run.points:
        return tuple(CurvePoint(**vars(p), train_accuracy=accuracy.get(p.epoch, math.nan)) for p in run.points)
    # The record of one process has no updates per epoch; a finished run made the same number in each.
    each = run.updates / len(run.epochs) if run.status == "finished" and run.epochs else math.nan
    ends = accumulate(e.wall_s for e in run.epochs)
    return tuple(
        CurvePoint(e.epoch, end, each * e.epoch, e.loss, e.test_loss, e.train_accuracy, e.test_accuracy, e.test_metric)
        for e, end in zip(run.epochs, ends, strict=True)
    )


def measurement_names(records: Records) -> list[tuple[str, Measurement]]:
    """Measurements with the shortest names that distinguish them; places are added if needed."""
    found = sorted(records.measurements, key=lambda entry: (entry[1].name, entry[1].batch, threads_of(entry[1])))
    told = [
        {
            "network": m.name, "batch": str(m.batch), "processor": m.device_name, "step": m.step,
            "threads": str(threads_of(m)), "data": m.conditions.get("data", ""),
        }
        for _, m in found
    ]  # fmt: skip
    names = [label_by(settings, dict.fromkeys(("network", *telling_keys(told)))) for settings in told]
    alike = [place.split("/")[:-1] for name, (place, _) in zip(names, found, strict=True) if names.count(name) > 1]
    levels = zip(*alike, strict=False)  # folders that all are in are left out
    shared = sum(1 for _ in takewhile(lambda level: len({*level}) == 1, levels))
    return [
        (f"{name} · {_short_place(place, shared)}" if names.count(name) > 1 else name, m)
        for name, (place, m) in zip(names, found, strict=True)
    ]


def _short_place(place: str, shared: int) -> str:
    """The repetition, for a run of an experiment, whose directory ends in a hash and that number; else its path."""
    run = re.search(r"(^|[-/])[0-9a-f]{10}-([0-9]+)(/measure)?$", place)
    return f"repetition {run.group(2)}" if run else "/".join(place.split("/")[shared:])


def threads_of(m: Measurement) -> int:
    """0 if unknown, as on a GPU."""
    stated = m.conditions.get("threads", "")
    return int(stated) if stated.isdigit() else 0
