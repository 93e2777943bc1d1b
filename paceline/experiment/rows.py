"""One row a run: its settings, what became of it, and its figures, read from its directory alone."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from paceline import record
from paceline.errors import RecordError
from paceline.experiment import outcome
from paceline.experiment.figures import FIGURES, figures_of
from paceline.experiment.keys import WORKLOAD
from paceline.experiment.outcome import RunOutcome
from paceline.experiment.planning import setting_id
from paceline.measurement.measurement import Measurement
from paceline.simulation.time_record import TimeRecord
from paceline.strategy.distribution import Distribution
from paceline.strategy.presets import PRESETS
from paceline.strategy.strategy import Strategy
from paceline.training.evaluate import Evaluation
from paceline.training.run import Run

Row = dict[str, Any]

RECORD, MEASUREMENT = "record.json", "measurement.json"
IDENTITY = ("run", "setting", "repetition", "trial", "kind")
WORDS = ("strategy", "workers", "driver")
CONDITIONS = ("device_name", "threads_used", "cores", "torch")
ENDING = ("status", "error")
HIDDEN = ("number", "planned", "given")
"""What a row has for putting tables together, but no column of."""


def is_run(directory: Path) -> bool:
    return any((directory / name).exists() for name in (outcome.FILE, RECORD, MEASUREMENT))


def row_of(directory: Path, shown: str) -> Row:
    """Of a run's directory, of an experiment or not; `shown` is what the row calls it."""
    if (directory / outcome.FILE).exists():
        return _row_of_outcome(directory, shown)
    for name in (RECORD, MEASUREMENT):
        if (directory / name).exists():
            return row_of_file(directory / name, shown)
    raise RecordError(f"{directory} has no record")


def row_of_file(path: Path, shown: str) -> Row:
    """Of a record that belongs to no experiment."""
    found = record.load(path)
    if isinstance(found, RunOutcome):
        return _row_of_outcome(path.parent, shown)
    if isinstance(found, Run):
        settings = _workload(found.workload) | _distribution(found.distribution)
        row = {"kind": "train", **settings, "seed": found.workload.seed, "status": found.status}
        row |= _conditions(dataclasses.asdict(found.conditions))
    elif isinstance(found, TimeRecord):
        cluster = {key.replace("-", "_"): value for key, value in found.cluster.items()}
        settings = _workload(found.workload) | _distribution(found.distribution) | cluster
        del settings["driver"]
        row = {"kind": "simulate", **settings, "seed": found.workload.seed, "status": "finished"}
    elif isinstance(found, Measurement):
        known = {"network": found.name, "batch": found.batch, "device": found.device}
        settings = known | {key: value for key, value in found.conditions.items() if key in WORKLOAD}
        row = {"kind": "measure", **settings, "status": "finished", "device_name": found.device_name}
    elif isinstance(found, Evaluation):
        settings = _workload(found.workload) | {"data": found.data}
        row = {"kind": "evaluate", **settings, "seed": found.workload.seed, "status": "finished"}
    else:
        raise RecordError(f"{path} holds a {type(found).__name__}, which has no figures to compare")
    settings = {"kind": row["kind"]} | {key: value for key, value in settings.items() if key != "seed"}
    identity = {"run": shown, "setting": setting_id(settings), "given": settings, "directory": shown}
    return {**identity, **row, **figures_of(found)}


def _row_of_outcome(directory: Path, shown: str) -> Row:
    found = record.load(directory / outcome.FILE)
    if not isinstance(found, RunOutcome):
        raise RecordError(f"{directory / outcome.FILE} holds a {type(found).__name__}, not an outcome")
    row: Row = {
        "run": found.run,
        "setting": found.setting,
        "repetition": found.repetition,
        "trial": found.trial,
        "kind": found.settings["kind"],
        **_workload(found.workload),
        **{key: _plain(value) for key, value in found.settings.items() if key not in WORKLOAD},
        "workers": found.workers,
        "status": found.status,
        "error": found.error,
        "started": found.started,
        "cores": found.cores,
        "number": found.number,
        "planned": found.planned,
        "given": found.settings,
    }
    if found.status != "failed":
        figures, conditions = _of_records(directory, found)
        row |= conditions | figures
    measured = {"process_s": found.process_s, "cpu_s": found.cpu_s, "peak_memory_bytes": found.peak_memory_bytes}
    return {**row, **measured, "directory": shown}


def _of_records(directory: Path, found: RunOutcome) -> tuple[Row, Row]:
    """Figures and conditions, from whatever records the run has kept."""
    places = [directory / RECORD, directory / MEASUREMENT, directory / "measure" / MEASUREMENT]
    records = [record.load(place) for place in places if place.exists()]
    if not records and found.status == "finished":
        raise RecordError(f"no record at {places[0]}")
    figures: Row = {}
    conditions: Row = {}
    for kept in reversed(records):  # what the run itself says comes over what was measured of it
        figures |= figures_of(kept)
        if isinstance(kept, Run):
            conditions |= _conditions(dataclasses.asdict(kept.conditions))
        elif isinstance(kept, Measurement):
            conditions |= _conditions({"device_name": kept.device_name, **kept.conditions})
    conditions.pop("cores", None)
    return figures, conditions


def _workload(workload: Any) -> Row:
    return {name: _plain(getattr(workload, name)) for name in WORKLOAD}


def _distribution(found: Distribution | None) -> Row:
    if found is None:
        return {"workers": 1}
    strategy, usual = found.strategy, PRESETS.get(found.strategy.name, Strategy())
    changed = {key: value for key, value in dataclasses.asdict(strategy).items() if value != getattr(usual, key)}
    return {**changed, "strategy": strategy.name, "workers": found.workers, "driver": found.driver}


def _conditions(known: Row) -> Row:
    used = {"threads_used": int(known["threads"])} if "threads" in known else {}
    return {key: known[key] for key in CONDITIONS if key in known} | used


def _plain(value: Any) -> Any:
    """What a table's cell can hold."""
    return json.dumps(value, sort_keys=True) if isinstance(value, dict | list | tuple) else value


def columns_of(rows: list[Row]) -> tuple[str, ...]:
    """Settings, then what became of it, then figures; columns without any value are left out."""
    filled = {key for row in rows for key, value in row.items() if value is not None and value == value}
    core = (*IDENTITY, *WORKLOAD, "strategy", "workers")
    named = {*core, *WORDS, *CONDITIONS, *ENDING, *FIGURES, *HIDDEN, "started", "directory"}
    words = dict.fromkeys(key for row in rows for key in row if key not in named)
    ordered = (
        *IDENTITY, *WORKLOAD, *WORDS, *words, "status", *FIGURES, *CONDITIONS, "started", "error", "directory",
    )  # fmt: skip
    always = {*core, "status", "error", "directory"} - {"trial"}
    return tuple(key for key in ordered if key in filled or key in always)
