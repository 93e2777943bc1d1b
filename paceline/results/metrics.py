"""The metrics of a record, by the names of their columns."""

from __future__ import annotations

import math
from typing import Any

from paceline.measurement.feeding import Feeding
from paceline.measurement.measurement import Measurement, Spread
from paceline.simulation.timing import TimeRecord
from paceline.strategy.distribution import Distribution
from paceline.trace import PARTS
from paceline.training.evaluate import Evaluation
from paceline.training.run import Run

Metrics = dict[str, Any]

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
"""That its record has under the same names."""


def metrics_of(record: Any) -> Metrics:
    """Empty for a record without any."""
    if isinstance(record, Run):
        return _run(record)
    if isinstance(record, Measurement):
        return _measurement(record)
    if isinstance(record, TimeRecord):
        return _simulation(record)
    if isinstance(record, Feeding):
        waiting = {"waiting_share": record.waiting_s / record.iteration_s.median_s}
        return _iteration(record.iteration_s) | waiting
    if isinstance(record, Evaluation):
        return {f"test_{name}": getattr(record, name) for name in ("accuracy", "top_accuracy", "loss", "metric")}
    return {}


def _run(run: Run) -> Metrics:
    last = run.epochs[-1] if run.epochs else None
    found: Metrics = {
        **{name: getattr(run, name) for name in OF_A_RUN},
        "train_accuracy": last.train_accuracy if last else math.nan,
        "train_loss": last.loss if last else math.nan,
        "epochs_done": len(run.epochs),
        "epoch_s": sum(e.wall_s for e in run.epochs) / len(run.epochs) if run.epochs else math.nan,
        "updates_per_s": run.updates / run.train_s if run.train_s else math.nan,
    }
    if run.distribution is not None:
        found |= _distribution(run.distribution)
    return found


def _distribution(found: Distribution) -> Metrics:
    ledger = found.ledger
    metrics: Metrics = {
        "updates_per_s": found.updates_per_s,
        "steps_per_s": found.steps_per_s,
        "mean_staleness": ledger.mean_staleness,
        "staleness_p99": ledger.staleness_up_to(0.99),
        "waiting_share": found.waiting_share,
        "applied": ledger.applied,
        "dropped": ledger.dropped,
        "refused": ledger.refused,
        "given_out_again": ledger.returned,
        "faults": found.fault_count,
        "server_share": found.server_s / found.seconds if found.seconds else math.nan,
    }
    if found.driver == "virtual":
        metrics["virtual_s"] = found.seconds
    return metrics


def _simulation(record: TimeRecord) -> Metrics:
    return {
        **_distribution(record.distribution),
        "communicating_share": record.communicating_share,
        "server_share": record.server_share,
        "updates": record.distribution.updates,
        "wall_s": record.wall_s,
        "message_bytes": record.message_bytes,
    }


def _iteration(spread: Spread) -> Metrics:
    return {"iteration_s": spread.median_s, "iteration_p10_s": spread.p10_s, "iteration_p90_s": spread.p90_s}


def _measurement(m: Measurement) -> Metrics:
    return {
        **{f"{part}_s": seconds for part, seconds in m.parts_s.items()},
        **_iteration(m.iteration_s),
        "samples_per_s": m.batch / m.iteration_s.median_s if m.iteration_s.median_s > 0 else math.nan,
        "accounted": m.accounted,
        "overhead": m.overhead,
        "parameters": sum(layer.parameters for layer in m.layers),
    }
