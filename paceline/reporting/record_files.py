"""Files that are made from the record of a run or measurement: page, tables, trace for Perfetto, plots."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import count, takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from paceline import record
from paceline.measurement.measurement import Measurement
from paceline.reporting.chrome_trace import TRACE, chrome_trace
from paceline.reporting.learned import write_learned
from paceline.reporting.page import write_summary
from paceline.reporting.paper_figures import write_figures
from paceline.reporting.sections.layers import measurement_figures
from paceline.results.csv_text import csv_text
from paceline.training.evaluate import ValidationTime
from paceline.training.measured_training import SHARES, Quarters
from paceline.training.run import Run
from paceline.training.worker_measurements import worker_measurements

if TYPE_CHECKING:
    from paceline.training.measured_training import TrainingClock

EXPERIMENT = "experiment.csv"
MEASURED = "measure"
UNKNOWN = ValidationTime(math.nan, "not measured")
TIMES = {share: f"at_{round(100 * share)}_percent_s" for share in SHARES}
LAYERS = ["iteration", "device", "layer", "forward_s", "backward_s", "update_s"]
ITERATIONS = ["iteration", "device", "seconds", "sampled", "loss", "top-1", "top-n"]
OUTPUTS = {"checkpoint": "checkpoint.pt", "record": "record.json", "summary": "summary.html"}


def write_measurement(m: Measurement, directory: Path, experiment: TrainingContext | None = None) -> list[Path]:
    """Writes the record and all files of a measurement; returns their paths."""
    record.save(m, directory / "measurement.json")
    return [directory / "measurement.json", *write_tables(m, directory, experiment)]


def write_tables(
    m: Measurement, directory: Path, experiment: TrainingContext | None = None, saved: Path | None = None
) -> list[Path]:
    """Writes the files of a measurement. `experiment` adds what the record does not have.

    The experiment.csv of a measurement that is already `saved` is kept.
    """
    kept = saved / EXPERIMENT if saved is not None and (saved / EXPERIMENT).is_file() else None
    layers = ([s.number, m.device, s.layer, s.forward_s, s.backward_s, s.update_s] for s in m.samples)
    iterations = ([k.number, m.device, k.seconds, int(k.sampled), k.loss, k.top_1, k.top_n] for k in m.kept)
    texts = {
        "layers.csv": csv_text(LAYERS, layers),
        "iterations.csv": csv_text(ITERATIONS, iterations),
        EXPERIMENT: kept.read_text() if kept else experiment_csv(m, experiment or context_of(m), directory),
        TRACE: chrome_trace(m.trace),
    }
    for name, text in texts.items():
        record.write_atomically(directory / name, text)
    drawn = write_figures(measurement_figures([(m.name, m)]), directory, "out")
    return [*(directory / name for name in texts), *drawn]


def write_run_files(run: Run, directory: Path, cache: Path | None = None) -> Path:
    """Writes trace, learned figure and page into the run's directory; returns the path of the page."""
    try:
        write_learned(run, directory, cache)
    finally:
        record.write_atomically(directory / TRACE, chrome_trace(run.timeline, directory.resolve().name))
        page = write_summary(run, directory)
    return page


def write_measured(run: Run, directory: Path, clock: TrainingClock | None) -> None:
    """Writes the measurements of this process or of the workers."""
    if clock is not None:
        *_, place = measured_folders(directory, new=True)
        write_measurement(clock.measurement(), place, experiment_of_run(run, clock.quarters, directory))
    elif run.distribution is not None and (directory / MEASURED).is_dir():
        for worker, found in worker_measurements(directory / MEASURED, run.distribution.workers).items():
            write_measurement(found, directory / MEASURED / f"worker-{worker}")


def measured_folders(directory: Path, *, new: bool = False) -> list[Path]:
    """`measure`, and `measure-2`, ... for resumed runs; `new` appends the next one."""

    def folder(number: int) -> Path:
        return directory / (MEASURED if number == 1 else f"{MEASURED}-{number}")

    found = list(takewhile(Path.exists, map(folder, count(1))))
    return [*found, folder(len(found) + 1)] if new else found


@dataclass(frozen=True)
class TrainingContext:
    """The training that a measurement belongs to: its times, validation and files."""

    training_s: float
    reached_s: dict[float, float]  # seconds of training until this share of the iterations was done
    validation: ValidationTime = UNKNOWN
    outputs: dict[str, str] = field(default_factory=dict)  # files of the run, by kind


def context_of(m: Measurement, validation: ValidationTime = UNKNOWN) -> TrainingContext:
    """Estimated from a measurement alone: recorded iterations stand for those between them."""
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
    """The context of a run that was measured while it trained, since it was last resumed."""
    spans = [span for span in run.trace.spans if span.part == "validate"]
    seconds = sum(span.duration_s for span in spans)
    validation = ValidationTime(seconds, f"all {len(spans)} validations of the run") if spans else UNKNOWN
    outputs = {what: str(directory / name) for what, name in OUTPUTS.items() if (directory / name).exists()}
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
