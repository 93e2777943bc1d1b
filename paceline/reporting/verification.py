"""Compares a run or a measurement with its prediction, saved or made now.

For a distributed run, a worker's step is predicted and the exchange is simulated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean, median
from typing import TypeVar

from paceline import record
from paceline.cluster import Device, DeviceCount, Link, Machine, find_link
from paceline.cost.calibrations import calibration_path, load_calibration
from paceline.cost.device_calibration import find_catalogue_device
from paceline.cost.predicting import HERE, predict
from paceline.cost.prediction import Prediction
from paceline.cost.this_machine import USUAL_BUS, node_link
from paceline.cost.verification import Comparison, Verification, compare_measurement, compared, without_counterpart
from paceline.errors import InputError, RecordError
from paceline.formatting import listed
from paceline.measurement.measurement import Measurement
from paceline.simulation.on_cluster import ClusterOutcome, simulate_on
from paceline.training.run import Run
from paceline.trust import check_code
from paceline.workload import Workload, resolve

PREDICTION, RUN, MEASUREMENT = "prediction.json", "record.json", "measurement.json"

Kind = TypeVar("Kind", Run, Measurement, Prediction)


@dataclass(frozen=True)
class Measured:
    """The contents of a directory that a prediction can be compared with."""

    run: Run | None = None
    measurement: Measurement | None = None
    workers: tuple[Measurement, ...] = ()  # of the workers of a distributed run
    prediction: Prediction | None = None
    notes: list[str] = field(default_factory=list)


def verify(
    place: str | Path | Run | Measurement,
    *,
    prediction: Prediction | None = None,
    device: str | None = None,
) -> Verification:
    """`place` is a run or a measurement, or its directory, where a saved prediction.json is preferred to a new one."""
    name = str(place) if isinstance(place, str | Path) else "this"
    if isinstance(place, Measurement):
        found = Measured(measurement=place)
    else:
        found = Measured(place) if isinstance(place, Run) else read_measured(Path(place))
    if found.run is not None and found.run.is_simulated:
        raise InputError(f"{name} is a simulated run: there are no measured times to compare")
    saved = prediction or found.prediction
    if saved is not None and device is not None:
        raise InputError(f"`device` does not apply: {place} has a saved prediction, {PREDICTION}")
    if saved is None and found.run is not None and isinstance(place, str | Path):
        check_code(vars(found.run.workload), place, found.run.conditions.made_in)
    p = saved or predict_now(*_asked(found, device))
    rows = tuple(_rows(found, p))
    if not any(math.isfinite(row.error) for row in rows):
        raise InputError(f"{name} was too short: it has no measured time to compare")
    return Verification(p.name, p.batch, p.device, p.step, saved is not None, rows, p, tuple(_notes(found, p)))


def read_measured(place: Path) -> Measured:
    if not place.exists():
        raise RecordError(f"{place}: no such directory")
    home = place if place.is_dir() else place.parent
    run = _load(home / RUN, Run)
    measurement = _load(home / MEASUREMENT, Measurement)
    if run is None and measurement is None:
        raise RecordError(f"{place} holds neither a run ({RUN}) nor a measurement ({MEASUREMENT})")
    folders = [home]
    if run is not None:
        folders += sorted(home.glob("measure")) + sorted(home.glob("measure-*"))
        measurement = next((m for folder in folders[1:] if (m := _load(folder / MEASUREMENT, Measurement))), None)
    elif home.name.startswith("measure"):  # the run is one directory up
        run = _load(home.parent / RUN, Run)
        folders.append(home.parent)
    workers = (record.load_as(path, Measurement) for path in sorted(home.glob("measure/worker-*.json")))
    prediction = next((p for folder in folders if (p := _load(folder / PREDICTION, Prediction))), None)
    return Measured(run, measurement, tuple(workers), prediction)


def _load(path: Path, kind: type[Kind]) -> Kind | None:
    return record.load_as(path, kind) if path.exists() else None


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
    run, p, measured = found.run, prediction, found.measurement or next(iter(found.workers), None)
    shards = run.distribution.server_shards if run is not None and run.distribution is not None else 1
    if shards > 1:
        yield f"the run had {shards} shards of the server: the prediction assumes one"
    busy, device, used = "", p.device, {}
    if measured is not None:
        busy, device = measured.conditions.get("busy", ""), measured.device_name
        used = {"batch": measured.batch, "step": measured.step}
    if run is not None:
        busy, device = run.conditions.busy or busy, run.conditions.device_name
        used = {"batch": run.workload.batch, "step": run.step.kind, "precision": run.workload.precision}
    if busy:
        yield f"noticed during the measurement: {busy}"
    if not _same_device(p.device, device):
        yield f"predicted for {p.device}, but measured on {device}"
    for what, value in used.items():
        if getattr(p, what) != value:
            words = {"batch": "batch ", "step": "the step "}.get(what, "")
            yield f"predicted for {words}{getattr(p, what)}, but the run used {value}"
    if found.measurement is not None:
        kinds = ("predicted but not measured", "measured but not predicted")
        for kind, names in zip(kinds, without_counterpart(p, found.measurement), strict=True):
            if names:
                yield f"{kind}: {listed(names)}"


def _same_device(one: str, other: str) -> bool:
    """PyTorch and the catalogue may have different names for a device."""
    return one == other or ((known := find_catalogue_device(one)) is not None and known == find_catalogue_device(other))


def compare_distribution(run: Run, prediction: Prediction, workers: Sequence[Measurement]) -> Iterator[Comparison]:
    """A worker's step and its parts, then the epoch; with layer clocks also mean forward and backward times."""
    p, expected = prediction, expected_outcome(run, prediction)
    low, high = p.low_s / p.iteration_s, p.high_s / p.iteration_s
    step_s, epoch_s = expected.step_s, expected.epoch_s
    shares = {"communicating": expected.communication_share, "waiting": expected.waiting_share}
    shares = {"computing": 1.0 - sum(shares.values()), **shares}
    measured_epoch_s = median(epoch.wall_s for epoch in run.epochs[1:] or run.epochs) if run.epochs else math.nan
    if epoch_s and run.epochs:
        measured_s = measured_epoch_s * step_s / epoch_s
        yield compared("a worker's step", "iteration", step_s, measured_s, low * step_s, high * step_s)
    found_s = _measured_parts(run, workers)
    for name, share in shares.items() if found_s else ():
        interval = (low * share * step_s, high * share * step_s) if name == "computing" else ()
        yield compared(name, "distribution", share * step_s, found_s[name], *interval)
    for part in ("forward", "backward") if workers else ():
        yield compared(part, "part", p.parts_s.get(part, 0.0), mean(w.parts_s.get(part, 0.0) for w in workers))
    if epoch_s and run.epochs:
        yield compared("epoch", "epoch", epoch_s, measured_epoch_s, low * epoch_s, high * epoch_s)


def _measured_parts(run: Run, workers: Sequence[Measurement]) -> dict[str, float]:
    """Parts of a worker's step: from the layer clocks, else from the workers' own totals, including the first steps."""
    if workers:
        communicating_s = mean(w.parts_s.get("communicate", 0.0) for w in workers)
        waiting_s = mean(w.parts_s.get("idle", 0.0) for w in workers)
        computing_s = mean(sum(w.parts_s.values()) for w in workers) - communicating_s - waiting_s
        return {"computing": computing_s, "communicating": communicating_s, "waiting": waiting_s}
    assert run.distribution is not None
    batches = sum(worker.batches for worker in run.distribution.by_worker)
    return {name: seconds / batches for name, seconds in run.distribution.spent_s.items()} if batches else {}


def expected_outcome(run: Run, prediction: Prediction) -> ClusterOutcome:
    """All workers on the machine of the record, which does not say how many GPUs it had: one is assumed.

    Those of a run on several nodes are evenly on such machines, with the calibrated network between them.
    """
    found, conditions = run.distribution, run.conditions
    assert found is not None
    on_cpu = conditions.device == "cpu"
    device = Device(prediction.device, "cpu" if on_cpu else "gpu", cores=conditions.cores if on_cpu else None)
    machine = Machine(
        "this machine", (DeviceCount(device),), vcpus=conditions.cores,
        host_device=None if on_cpu else find_link(USUAL_BUS),
    )  # fmt: skip
    each = -(-found.workers // max(1, found.nodes))
    network = calibrated_network(conditions.device_name) if found.nodes > 1 else None
    return simulate_on(
        prediction, machine, found.workers, found.strategy, network=network, workers_per_machine=each,
        driver=found.driver,
    )  # fmt: skip


def calibrated_network(device: str) -> Link:
    """Between the nodes of a cluster, as it was measured from the machine with this device."""
    path = calibration_path(device)
    found = node_link(load_calibration(path)) if path.exists() else None
    if found is None:
        raise InputError(
            "the run had workers on several nodes, and the network between them is not calibrated: "
            "run `paceline.calibrate(address=...)`"
        )
    return found
