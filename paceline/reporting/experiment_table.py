"""`experiment.csv`: one row with the configuration, how long it took, and where everything went."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

from paceline.measurement.measurement import Measurement
from paceline.results.csv_text import csv_text
from paceline.training.evaluate import ValidationTime
from paceline.training.measured_training import SHARES, Quarters
from paceline.training.run import Run

UNKNOWN = ValidationTime(math.nan, "not measured")
TIMES = {share: f"at_{round(100 * share)}_percent_s" for share in SHARES}
OUTPUTS = ("checkpoint", "record", "summary")


@dataclass(frozen=True)
class TrainingContext:
    """What was around a measurement: the training as a whole, its validation, and its files."""

    training_s: float
    reached_s: dict[float, float]
    """Seconds of training after which this share of the iterations was done."""
    validation: ValidationTime = UNKNOWN
    outputs: dict[str, str] = field(default_factory=dict)
    """Files of a run by what they are."""


def context_of(m: Measurement, validation: ValidationTime = UNKNOWN) -> TrainingContext:
    """From a measurement alone: the iterations that were kept stand for those between them."""
    untouched = [k for k in m.kept if not k.sampled] or list(m.kept)
    reached_s = {}
    for share in SHARES:
        wanted, before, seconds = share * m.iterations, 0.0, 0.0
        for kept in untouched:
            seconds += kept.seconds * (min(wanted, kept.number + 1) - before)
            before = min(wanted, kept.number + 1)
        last_s = untouched[-1].seconds if untouched else math.nan
        reached_s[share] = (seconds + last_s * (wanted - before)) * (1.0 + m.overhead)
    return TrainingContext(reached_s[1.0], reached_s, validation)


def experiment_of_run(run: Run, quarters: Quarters, directory: Path) -> TrainingContext:
    """Of a run that was measured while it trained, or of the part of it since it was resumed."""
    spans = [span for span in run.trace.spans if span.part == "validate"]
    seconds = sum(span.duration_s for span in spans)
    validation = ValidationTime(seconds, f"all {len(spans)} validations of the run") if spans else UNKNOWN
    files = {"checkpoint": "checkpoint.pt", "record": "record.json", "summary": "summary.html"}
    outputs = {what: str(directory / name) for what, name in files.items() if (directory / name).exists()}
    return TrainingContext(quarters.training_s, dict(quarters.reached_s), validation, outputs)


def experiment_csv(m: Measurement, experiment: TrainingContext, directory: Path) -> str:
    row: dict[str, object] = {
        "network": m.name,
        "batch": m.batch,
        "device": m.device,
        "device_name": m.device_name,
        "step": m.step,
        "iterations": m.iterations,
        **{f"setting_{key}": value for key, value in m.conditions.items()},
        "training_s": experiment.training_s,
        **{column: experiment.reached_s.get(share, math.nan) for share, column in TIMES.items()},
        "validation_s": experiment.validation.seconds,
        "validation": experiment.validation.how,
        "overhead": m.overhead,
        "output": str(directory),
        **{f"output_{what}": experiment.outputs.get(what, "") for what in OUTPUTS},
    }
    return csv_text(list(row), [row.values()])
