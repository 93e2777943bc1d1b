"""Compares a run or a measurement with its prediction, which is loaded or made now."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from paceline import record
from paceline.cost.prediction import Prediction
from paceline.cost.verification import (
    Comparison,
    Verification,
    compare_measurement,
    compared,
    without_counterpart,
)
from paceline.errors import InputError, RecordError
from paceline.formatting import listed
from paceline.measurement.measurement import Measurement
from paceline.reporting.distributed_verification import compare_distribution
from paceline.training.run import Run
from paceline.trust import check_code
from paceline.workload import Workload, resolve

PREDICTION, RUN, MEASUREMENT = "prediction.json", "record.json", "measurement.json"

Predict = Callable[[Workload, str, str], Prediction]
"""From a workload, a device (as named in the record, or a given file or name) and a step."""

Kind = TypeVar("Kind", Run, Measurement, Prediction)


@dataclass(frozen=True)
class Measured:
    """The contents of a directory that a prediction can be compared with."""

    run: Run | None = None
    measurement: Measurement | None = None
    workers: tuple[Measurement, ...] = ()
    """Measurements of the workers of a distributed run."""
    prediction: Prediction | None = None
    notes: list[str] = field(default_factory=list)


def verify(
    place: str | Path | Run | Measurement,
    *,
    prediction: Prediction | None = None,
    device: str | None = None,
    predict: Predict | None = None,
) -> Verification:
    """`place` is a run or a measurement, or its directory, where a saved prediction.json is preferred to a new one."""
    found = _measured(place)
    if prediction is not None:
        found = replace(found, prediction=prediction)
    prediction = found.prediction
    if prediction is None:
        if found.run is not None and isinstance(place, str | Path):
            check_code(vars(found.run.workload), place, found.run.conditions.made_in)
        prediction = (predict or predict_now)(*_asked(found, device))
    elif device is not None:
        raise InputError(f"`device` does not apply: {place} has a saved prediction, {PREDICTION}")
    rows = tuple(_rows(found, prediction))
    if not any(math.isfinite(row.error) for row in rows):
        named = place if isinstance(place, str | Path) else "this run"
        raise InputError(f"{named} was too short: it has no measured time to compare")
    p = prediction
    return Verification(
        p.name, p.batch, p.device, p.step, found.prediction is not None, rows, p, tuple(_notes(found, prediction))
    )


def _measured(given: str | Path | Run | Measurement) -> Measured:
    if isinstance(given, Measurement):
        return Measured(measurement=given)
    if not isinstance(given, Run):
        return read_measured(Path(given))
    if given.distribution is not None and given.distribution.driver == "virtual":
        raise InputError("this is a simulated run: nothing of it was measured")
    return Measured(given)


def read_measured(place: Path) -> Measured:
    """Every file of the directory that matters; a file stands for its directory."""
    if not place.exists():
        raise RecordError(f"{place}: no such directory")
    home = place if place.is_dir() else place.parent
    run = _load(home / RUN, Run)
    measurement = _load(home / MEASUREMENT, Measurement)
    if run is None and measurement is None:
        raise RecordError(f"{place} holds neither a run ({RUN}) nor a measurement ({MEASUREMENT})")
    folders = [home]
    if run is not None:
        if run.distribution is not None and run.distribution.driver == "virtual":
            raise InputError(f"{place} is a simulated run: nothing of it was measured")
        folders += sorted(home.glob("measure")) + sorted(home.glob("measure-*"))
        measurement = next((m for folder in folders[1:] if (m := _load(folder / MEASUREMENT, Measurement))), None)
    elif home.name.startswith("measure"):  # of a run, one folder above
        run = _load(home.parent / RUN, Run)
        folders.append(home.parent)
    workers = [_load(path, Measurement) for path in sorted(home.glob("measure/worker-*.json"))]
    prediction = next((p for folder in folders if (p := _load(folder / PREDICTION, Prediction))), None)
    return Measured(run, measurement, tuple(w for w in workers if w is not None), prediction)


def _load(path: Path, kind: type[Kind]) -> Kind | None:
    """The record at a place, if there is one."""
    if not path.exists():
        return None
    found = record.load(path)
    if not isinstance(found, kind):
        raise RecordError(f"{path} holds a {type(found).__name__.lower()}, not a {kind.__name__.lower()}")
    return found


def _asked(found: Measured, device: str | None) -> tuple[Workload, str, str]:
    """What to predict: the run's own workload, device and step."""
    if found.run is not None:
        run = found.run
        threads = run.conditions.threads if run.conditions.device == "cpu" else 0
        workload = replace(run.workload, threads=threads)
        return workload, device or run.conditions.device_name, run.step.kind
    m = found.measurement
    assert m is not None
    keys = ("data", "optimizer", "precision", *(("threads",) if m.device == "cpu" else ()))
    settings = {key: m.conditions[key] for key in keys if key in m.conditions}
    found.notes.append("a measurement does not have all settings of its workload: defaults were used for the others")
    return resolve(m.name, {**settings, "batch": m.batch}), device or m.device_name, m.step


def predict_now(workload: Workload, device: str, step: str) -> Prediction:
    """Predicts with this machine's calibration of the device, or with the catalogue."""
    from paceline.cost.calibrations import calibration_path, load_calibration
    from paceline.cost.device_calibration import find_catalogue_device
    from paceline.cost.predicting import HERE, predict

    if HERE.fullmatch(device) or Path(device).is_file():
        return predict(workload, device, step=step)
    if calibration_path(device).exists():
        return predict(workload, load_calibration(calibration_path(device)), step=step)
    known = find_catalogue_device(device)
    if known is None:
        raise InputError(
            f"{device} has no calibration and is not in the catalogue: run paceline calibrate on it, "
            "or give a calibration file or a device as `device`"
        )
    return predict(workload, known, step=step)


def _rows(found: Measured, prediction: Prediction) -> Iterator[Comparison]:
    run, p = found.run, prediction
    if found.measurement is not None:
        yield from compare_measurement(p, found.measurement)
    if run is None:
        return
    if run.distribution is not None:
        yield from compare_distribution(run, p, found.workers)
        return
    if found.measurement is None:
        measured_s = run.workload.batch / run.samples_per_s if run.samples_per_s > 0 else math.nan
        yield compared("iteration", "iteration", p.iteration_s, measured_s, p.low_s, p.high_s)
    if run.updates and run.train_s > 0 and p.samples:
        steps = -(-p.samples // p.batch)
        measured_s = run.train_s / run.updates * steps
        yield compared("epoch", "epoch", p.epoch_s, measured_s, steps * p.low_s, steps * p.high_s)


def _notes(found: Measured, prediction: Prediction) -> Iterator[str]:
    """Differences that make the comparison unreliable."""
    yield from found.notes
    measured = found.measurement or next(iter(found.workers), None)
    batch = found.run.workload.batch if found.run is not None else measured.batch if measured is not None else 0
    step = found.run.step.kind if found.run is not None else measured.step if measured is not None else ""
    busy = found.run.conditions.busy if found.run is not None else ""
    busy = busy or (measured.conditions.get("busy", "") if measured is not None else "")
    if busy:
        yield f"when it was measured, {busy}"
    if batch != prediction.batch:
        yield f"predicted for batch {prediction.batch}, but the run used {batch}"
    if step != prediction.step:
        yield f"predicted for the step {prediction.step}, but the run used {step}"
    if found.run is not None and found.run.workload.precision != prediction.precision:
        yield f"predicted for {prediction.precision}, but the run used {found.run.workload.precision}"
    if found.measurement is not None:
        predicted, only_measured = without_counterpart(prediction, found.measurement)
        if predicted:
            yield f"predicted but not measured: {listed(predicted)}"
        if only_measured:
            yield f"measured but not predicted: {listed(only_measured)}"
