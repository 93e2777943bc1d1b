"""One run as one row of `results.csv`: its settings, what became of it, its metrics and the conditions it ran under."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from paceline.formatting import as_number
from paceline.measurement.feeding import Feeding
from paceline.measurement.measurement import Measurement
from paceline.results.labels import setting_id
from paceline.results.metrics import METRICS, metrics_of
from paceline.results.outcome import RunOutcome
from paceline.simulation.timing import TimeRecord
from paceline.strategy.distribution import Distribution
from paceline.strategy.presets import PRESETS
from paceline.strategy.strategy import Strategy
from paceline.training.evaluate import Evaluation
from paceline.training.run import Run
from paceline.workload import Workload

Row = dict[str, Any]
RunRecord = Run | TimeRecord | Measurement | Evaluation | Feeding

KINDS: dict[type, str] = {
    Run: "train", TimeRecord: "simulate", Measurement: "measure", Evaluation: "evaluate", Feeding: "feed",
}  # fmt: skip
IDENTITY = ("run", "setting", "repetition", "trial", "kind")
WORKLOAD = tuple(f.name for f in dataclasses.fields(Workload))
DISTRIBUTION = ("strategy", "workers", "driver")
CONDITIONS = ("step", "device_name", "threads_used", "cores", "torch", "paceline")
ENDING = ("status", "error", "started", "directory")
HIDDEN = ("number", "planned", "given")
"""Keys of a row that order and group the table and are not columns of it."""
NOT_SETTINGS = {*IDENTITY, *METRICS, *CONDITIONS, *ENDING, *HIDDEN}


def row_of(
    found: RunRecord | None, directory: str, outcome: RunOutcome | None = None, measured: Measurement | None = None
) -> Row:
    """`measured` was made while the run trained; without a record there is only what the experiment asked for."""
    settings, conditions = (row_settings(found), conditions_of(found)) if found is not None else ({}, {})
    metrics = (metrics_of(measured) if measured is not None else {}) | metrics_of(found)
    if isinstance(found, Run):
        settings["measure"] = measured is not None or bool(outcome and outcome.settings.get("measure"))
    if outcome is None:
        kind = KINDS[type(found)]
        given = {"kind": kind} | {key: value for key, value in settings.items() if key not in ("seed", "measure")}
        status = found.status if isinstance(found, Run) else "finished"
        row = {"run": directory, "setting": setting_id(given), "kind": kind, **settings, "status": status}
        return {**row, "given": given, **conditions, **metrics, "directory": directory}
    given = {key: _plain(value) for key, value in outcome.settings.items() if key not in WORKLOAD}
    row = {
        "run": outcome.run, "setting": outcome.setting, "repetition": outcome.repetition, "trial": outcome.trial,
        **settings, **_workload(outcome.workload), **given, "kind": outcome.settings["kind"],
        "workers": outcome.workers, "status": outcome.status, "error": outcome.error, "started": outcome.started,
        "number": outcome.number, "planned": outcome.planned, "given": outcome.settings,
    }  # fmt: skip
    used = {"process_s": outcome.process_s, "cpu_s": outcome.cpu_s, "peak_memory_bytes": outcome.peak_memory_bytes}
    return {**row, **conditions, "cores": outcome.cores, **metrics, **used, "directory": directory}


def row_settings(found: RunRecord) -> Row:
    """The settings that a record states, as far as they differ from those published under a strategy's name."""
    if isinstance(found, Run):
        return _workload(found.workload) | _distribution(found.distribution)
    if isinstance(found, TimeRecord):
        cluster = {key.replace("-", "_"): value for key, value in found.cluster.items()}
        return _workload(found.workload) | _distribution(found.distribution) | cluster
    if isinstance(found, Measurement):
        stated = {key: as_number(value) for key, value in found.conditions.items() if key in WORKLOAD}
        return {"network": found.name, "batch": found.batch, "device": found.device} | stated
    return _workload(found.workload) | {"data": found.data} if isinstance(found, Evaluation) else {}


def conditions_of(found: RunRecord) -> Row:
    if isinstance(found, Run):
        known: Row = {**dataclasses.asdict(found.conditions), "step": found.step.kind}
    elif isinstance(found, Measurement):
        known = {**found.conditions, "device_name": found.device_name, "step": found.step}
    else:
        return {}
    used = {"threads_used": int(known["threads"])} if str(known.get("threads", "")).isdigit() else {}
    return {key: known[key] for key in CONDITIONS if key in known} | used


def _workload(workload: Workload) -> Row:
    return {name: _plain(getattr(workload, name)) for name in WORKLOAD}


def _distribution(found: Distribution | None) -> Row:
    if found is None:
        return {"workers": 1}
    strategy, usual = found.strategy, PRESETS.get(found.strategy.name, Strategy())
    changed = {key: value for key, value in dataclasses.asdict(strategy).items() if value != getattr(usual, key)}
    if strategy.groups not in (None, 1):
        changed["groups"] = f"{strategy.groups}x{found.workers // strategy.groups}"
    return {**changed, "strategy": strategy.name, "workers": found.workers, "driver": found.driver}


def _plain(value: Any) -> Any:
    """What a cell of a table can hold."""
    return json.dumps(value, sort_keys=True) if isinstance(value, dict | list | tuple) else value


def columns_of(rows: list[Row]) -> tuple[str, ...]:
    """Settings, then the status, then metrics; columns without any value are left out."""
    filled = {key for row in rows for key, value in row.items() if value is not None and value == value}
    core = (*IDENTITY, *WORKLOAD, "strategy", "workers")
    named = {*core, *DISTRIBUTION, *NOT_SETTINGS}
    others = dict.fromkeys(key for row in rows for key in row if key not in named)
    ordered = (
        *IDENTITY, *WORKLOAD, *DISTRIBUTION, *others, "status", *METRICS, *CONDITIONS, "started", "error", "directory",
    )  # fmt: skip
    always = {*core, "status", "error", "directory"} - {"trial"}
    return tuple(key for key in ordered if key in filled or key in always)
