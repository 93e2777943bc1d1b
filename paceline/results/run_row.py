"""One run as one row of `results.csv`: settings, status, metrics and conditions."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterable
from typing import Any

from paceline.formatting import as_number
from paceline.held_objects import shown_name
from paceline.measurement.feeding import Feeding
from paceline.measurement.measurement import Measurement, Spread
from paceline.results.labels import setting_id
from paceline.results.outcome import RunOutcome
from paceline.simulation.timing import TimeRecord
from paceline.strategy.distribution import Distribution
from paceline.strategy.presets import PRESETS
from paceline.strategy.strategy import Strategy
from paceline.trace import PARTS
from paceline.training.division import Division
from paceline.training.evaluate import Evaluation
from paceline.training.run import Run
from paceline.workload import Workload

Row = dict[str, Any]
RunRecord = Run | TimeRecord | Measurement | Evaluation | Feeding

KINDS: dict[type, str] = {
    Run: "train", TimeRecord: "simulate", Measurement: "measure", Evaluation: "evaluate", Feeding: "feed",
}  # fmt: skip
# In the order of their columns.
METRICS = (
    "test_accuracy", "test_top_accuracy", "test_loss", "test_metric", "train_accuracy", "train_loss",
    "epochs_done", "updates", "wall_s", "train_s", "epoch_s", "samples_per_s", "updates_per_s", "steps_per_s",
    "virtual_s", "mean_staleness", "staleness_p99", "waiting_share", "communicating_share", "server_share", "applied",
    "dropped", "refused", "given_out_again", "faults", "iteration_s", "iteration_p10_s", "iteration_p90_s",
    *(f"{part}_s" for part in PARTS), "accounted", "overhead", "parameters", "message_bytes", "process_s", "cpu_s",
    "peak_memory_bytes",
)  # fmt: skip
OF_A_RUN = (
    "test_accuracy", "test_top_accuracy", "test_loss", "test_metric", "updates", "wall_s", "train_s", "samples_per_s",
    "parameters",
)  # fmt: skip
"""Attributes of a run's record that have the same names."""
IDENTITY = ("run", "setting", "repetition", "trial", "kind")
WORKLOAD = tuple(f.name for f in dataclasses.fields(Workload))
DISTRIBUTION = ("strategy", "workers", "driver")
CONDITIONS = ("step", "device_name", "threads_used", "cores", "torch", "paceline")
ENDING = ("status", "error", "started", "directory")
HIDDEN = ("number", "planned", "given")  # used to order and group rows; not columns
NOT_SETTINGS = {*IDENTITY, *METRICS, *CONDITIONS, *ENDING, *HIDDEN}


def row_of(
    found: RunRecord | None, directory: str, outcome: RunOutcome | None = None, measured: Measurement | None = None
) -> Row:
    """`measured` was made during the run. Without a record, the row has only the planned settings."""
    settings, conditions = (row_settings(found), conditions_of(found)) if found is not None else ({}, {})
    made = (METRICS_OF[type(one)](one) for one in (measured, found) if one is not None)
    metrics = {name: value for each in made for name, value in each.items()}
    if isinstance(found, Run):
        settings["measure"] = measured is not None or bool(outcome and outcome.run.settings.get("measure"))
    if outcome is None:
        kind = KINDS[type(found)]
        given = {"kind": kind} | {key: value for key, value in settings.items() if key not in ("seed", "measure")}
        status = found.status if isinstance(found, Run) else "finished"
        row = {"run": directory, "setting": setting_id(given), "kind": kind, **settings, "status": status}
        return {**row, "given": given, **conditions, **metrics, "directory": directory}
    run = outcome.run
    given = {key: _plain(value) for key, value in run.settings.items() if key not in WORKLOAD}
    row = {
        "run": run.id, "setting": run.setting, "repetition": run.repetition, "trial": run.trial,
        **settings, **_workload(run.workload), **given, "kind": run.kind, "workers": run.workers,
        "status": outcome.status, "error": outcome.error, "started": outcome.started,
        "number": run.number, "planned": outcome.planned, "given": run.settings,
    }  # fmt: skip
    used = _attributes(outcome, ("process_s", "cpu_s", "peak_memory_bytes"))
    return {**row, **conditions, "cores": outcome.cores, **metrics, **used, "directory": directory}


def row_settings(found: RunRecord) -> Row:
    """The settings in a record; those of a strategy only if they differ from its preset."""
    if isinstance(found, Run):
        return _workload(found.workload) | _distribution(found.distribution) | _division(found.division)
    if isinstance(found, TimeRecord):
        cluster = {key.replace("-", "_"): value for key, value in found.cluster.items()}
        return _workload(found.workload) | _distribution(found.distribution) | cluster
    if isinstance(found, Measurement):
        stated = {key: as_number(value) for key, value in found.conditions.items() if key in WORKLOAD}
        return {"network": shown_name(found.name), "batch": found.batch, "device": found.device} | stated
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


def _division(found: Division | None) -> Row:
    if found is None:
        return {}
    return {
        "workers": found.replicas, "pipeline_schedule": found.schedule, "cut": ",".join(found.cut[1:]),
        **_attributes(found, ("pipeline", "microbatches", "tensor", "shard")),
    }  # fmt: skip


def _plain(value: Any) -> Any:
    """A value that fits a table cell."""
    if isinstance(value, dict | list | tuple):
        return json.dumps(value, sort_keys=True)
    return shown_name(value) if isinstance(value, str) else value


def columns_of(rows: list[Row]) -> tuple[str, ...]:
    """Settings, status, metrics; empty columns are left out."""
    filled = {key for row in rows for key, value in row.items() if value is not None and value == value}
    core = (*IDENTITY, *WORKLOAD, "strategy", "workers")
    named = {*core, *DISTRIBUTION, *NOT_SETTINGS}
    others = dict.fromkeys(key for row in rows for key in row if key not in named)
    ordered = (
        *IDENTITY, *WORKLOAD, *DISTRIBUTION, *others, "status", *METRICS, *CONDITIONS, "started", "error", "directory",
    )  # fmt: skip
    always = {*core, "status", "error", "directory"} - {"trial"}
    return tuple(key for key in ordered if key in filled or key in always)


def _attributes(record: object, names: Iterable[str]) -> Row:
    return {name: getattr(record, name) for name in names}


def _run(run: Run) -> Row:
    last = run.epochs[-1] if run.epochs else None
    return {
        **_attributes(run, OF_A_RUN),
        "train_accuracy": last.train_accuracy if last else math.nan,
        "train_loss": last.loss if last else math.nan,
        "epochs_done": len(run.epochs),
        "epoch_s": sum(e.wall_s for e in run.epochs) / len(run.epochs) if run.epochs else math.nan,
        "updates_per_s": run.updates / run.train_s if run.train_s else math.nan,
        **(_distribution_metrics(run.distribution) if run.distribution is not None else {}),
        **(_attributes(run.division, ("idle_share",)) if run.division is not None else {}),
    }


def _distribution_metrics(found: Distribution) -> Row:
    ledger = found.ledger
    return {
        **_attributes(found, ("updates_per_s", "steps_per_s", "waiting_share")),
        **_attributes(ledger, ("mean_staleness", "applied", "dropped", "refused")),
        "staleness_p99": ledger.staleness_up_to(0.99),
        "given_out_again": ledger.returned,
        "faults": found.fault_count,
        "server_share": found.server_s / found.seconds if found.seconds else math.nan,
        **({"virtual_s": found.seconds} if found.driver == "virtual" else {}),
    }


def _simulation(record: TimeRecord) -> Row:
    own = _attributes(record, ("communicating_share", "server_share", "wall_s", "message_bytes"))
    return {**_distribution_metrics(record.distribution), **own, "updates": record.distribution.updates}


def _evaluation(found: Evaluation) -> Row:
    return {f"test_{name}": getattr(found, name) for name in ("accuracy", "top_accuracy", "loss", "metric")}


def _feeding(found: Feeding) -> Row:
    return {**_iteration(found.iteration_s), "waiting_share": found.waiting_s / found.iteration_s.median_s}


def _iteration(spread: Spread) -> Row:
    return {"iteration_s": spread.median_s, "iteration_p10_s": spread.p10_s, "iteration_p90_s": spread.p90_s}


def _measurement(m: Measurement) -> Row:
    return {
        **{f"{part}_s": seconds for part, seconds in m.parts_s.items()},
        **_iteration(m.iteration_s),
        "samples_per_s": m.batch / m.iteration_s.median_s if m.iteration_s.median_s > 0 else math.nan,
        "accounted": m.accounted,
        "overhead": m.overhead,
        "parameters": sum(layer.parameters for layer in m.layers),
    }


METRICS_OF: dict[type, Callable[[Any], Row]] = {
    Run: _run, TimeRecord: _simulation, Measurement: _measurement, Evaluation: _evaluation, Feeding: _feeding,
}  # fmt: skip
