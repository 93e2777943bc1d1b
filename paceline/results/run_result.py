"""A run of the table of results with the record behind it: what pages and studies are made from."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
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
"""Of the best accuracy on the same data; runs below it are left out of rankings."""
MEASURED = "measure"
"""The setting, and the folder in a run's directory, of a training that was measured."""


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
    test_metric: float = math.nan


@dataclass(frozen=True, eq=False)
class RunResult:
    row: Row
    place: str
    record: RunRecord | None = None
    """None: the run failed, or was read from a results.csv alone."""
    group: str = ""
    """The name that it shares with its repetitions."""
    label: str = ""
    telling: tuple[str | None, ...] = ()
    """The values that its group's name is made of."""
    ranked: bool = True
    """Whether it may be called best or fastest: it finished, and did not end far below the best run on its data."""

    @cached_property
    def settings(self) -> dict[str, str]:
        """As text: of the workload, its network's options, the strategy and the machine."""
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
        """Of training, on the driver's own clock."""
        return self.metric("virtual_s" if self.virtual else "train_s")

    @property
    def wall_s(self) -> float:
        return self.metric("wall_s")

    @property
    def samples_per_s(self) -> float:
        """On the driver's own clock."""
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
        """Of the metric of the workload or its network, if there is one."""
        return self.metric("test_metric")

    @property
    def metric_name(self) -> str:
        return (self.run.metric if self.run is not None else "") or "metric"

    @property
    def has_network_metric(self) -> bool:
        """Whether its network brought the metric: less is better then."""
        brought = self.run is not None and not self.run.workload.metric
        return brought and math.isfinite(self.metric_value)

    @property
    def labelled(self) -> bool:
        return math.isfinite(self.accuracy)

    @property
    def run(self) -> Run | None:
        """The record, where something was trained."""
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
    """Every run, simulation, measurement, evaluation and feeding that was found, and the runs that failed."""
    outcomes, runs = dict(records.outcomes), {place for place, _ in records.runs}
    within = {place: m for place, m in records.measurements if not runs.isdisjoint(map(str, Path(place).parents))}
    alone: list[tuple[str, RunRecord]] = [entry for entry in records.measurements if entry[0] not in within]
    found: list[tuple[str, RunRecord]] = [*records.runs, *records.simulations, *alone, *records.feedings]
    found += [entry for entry in records.evaluations if entry[0] not in runs]
    made = []
    for place, record in found:
        row = row_of(
            record, records.directory(place), outcomes.get(place), within.get(str(Path(place) / MEASURED))
        )  # fmt: skip
        made.append(RunResult(row, place, record))
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
    best: dict[str, float] = {}
    for run in named:
        if run.status == "finished" and run.labelled:
            best[run.settings["data"]] = max(run.accuracy, best.get(run.settings["data"], 0.0))
    return tuple(replace(run, label=_label(run, groups[run.group]), ranked=_may_rank(run, best)) for run in named)


def _may_rank(run: RunResult, best: Mapping[str, float]) -> bool:
    """Speed is no merit of a run that did not learn."""
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
    """Repetitions together, in the order of their first one."""
    return grouped(runs, lambda run: run.group)


def values_of(runs: Iterable[RunResult], key: str) -> list[str]:
    return in_order(run.settings[key] for run in runs if key in run.settings)


def _curve(run: Run) -> tuple[CurvePoint, ...]:
    accuracy = {float(e.epoch): e.train_accuracy for e in run.epochs}
    if run.points:
        return tuple(
            CurvePoint(
                p.epoch, p.seconds, p.updates, p.train_loss, p.test_loss, accuracy.get(p.epoch, math.nan),
                p.test_accuracy, p.test_metric,
            )
            for p in run.points
        )  # fmt: skip
    # A record of one process does not count updates by epoch; a finished run made as many in each.
    each = run.updates / len(run.epochs) if run.status == "finished" and run.epochs else math.nan
    ends = accumulate(e.wall_s for e in run.epochs)
    return tuple(
        CurvePoint(e.epoch, end, each * e.epoch, e.loss, e.test_loss, e.train_accuracy, e.test_accuracy, e.test_metric)
        for e, end in zip(run.epochs, ends, strict=True)
    )


def measurement_names(records: Records) -> list[tuple[str, Measurement]]:
    """Measurements with the shortest names that tell them apart; with their places where nothing else does."""
    found = sorted(records.measurements, key=lambda entry: (entry[1].name, entry[1].batch, threads_of(entry[1])))
    told = [
        {
            "network": m.name, "batch": str(m.batch), "processor": m.device_name, "step": m.step,
            "threads": str(threads_of(m)), "data": m.conditions.get("data", ""),
        }
        for _, m in found
    ]  # fmt: skip
    names = [label_by(settings, dict.fromkeys(("network", *telling_keys(told)))) for settings in told]
    return [
        (f"{name} · {_short_place(place)}" if names.count(name) > 1 else name, m)
        for name, (place, m) in zip(names, found, strict=True)
    ]


def _short_place(place: str) -> str:
    """The repetition, for a run of an experiment: its directory's name ends in a hash and that number."""
    run = re.search(r"(^|[-/])[0-9a-f]{10}-([0-9]+)(/measure)?$", place)
    return f"repetition {run.group(2)}" if run else place


def threads_of(m: Measurement) -> int:
    """0: not known, as of one on a GPU."""
    stated = m.conditions.get("threads", "")
    return int(stated) if stated.isdigit() else 0
