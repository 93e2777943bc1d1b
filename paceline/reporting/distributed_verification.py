"""Compares a distributed run with its prediction: a worker's step is predicted, the exchange simulated."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import mean, median

from paceline.cluster import Device, DeviceCount, Machine, find_link
from paceline.cost.calibrations import local_calibrations
from paceline.cost.exchange import protocol_of
from paceline.cost.prediction import Prediction
from paceline.cost.verification import Comparison, compared
from paceline.measurement.measurement import Measurement
from paceline.simulation.on_cluster import ClusterOutcome, simulate_on
from paceline.training.run import Run

USUAL_BUS = "PCIe 4.0 x16"


def compare_distribution(run: Run, prediction: Prediction, workers: Sequence[Measurement]) -> Iterator[Comparison]:
    """A worker's step and its parts, then the epoch; with layer clocks also mean forward and backward times."""
    p, expected = prediction, expected_outcome(run, prediction)
    low, high = p.low_s / p.iteration_s, p.high_s / p.iteration_s
    parts_s = _parts(run, p, expected)
    step_s = sum(parts_s.values())
    epoch_s = expected.epoch_s * step_s / expected.step_s
    measured_epoch_s = median(epoch.wall_s for epoch in run.epochs[1:] or run.epochs) if run.epochs else math.nan
    if epoch_s and run.epochs:
        measured_s = measured_epoch_s * step_s / epoch_s
        yield compared("a worker's step", "iteration", step_s, measured_s, low * step_s, high * step_s)
    found_s = _measured_parts(run, workers)
    for name, seconds in parts_s.items() if found_s else ():
        interval = (low * seconds, high * seconds) if name == "computing" else ()
        yield compared(name, "distribution", seconds, sum(found_s[one] for one in name.split(" and ")), *interval)
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
    accounts = run.distribution.by_worker if run.distribution is not None else ()
    batches = sum(worker.batches for worker in accounts)
    names = ("computing", "communicating", "waiting") if batches else ()
    return {name: sum(getattr(worker, f"{name}_s") for worker in accounts) / batches for name in names}


def _parts(run: Run, prediction: Prediction, expected: ClusterOutcome) -> dict[str, float]:
    """Parts of a worker's step: from this machine's calibration of such workers, else simulated."""
    found, cores = run.distribution, run.conditions.cores
    assert found is not None
    protocol = protocol_of(found.strategy)
    for calibration in local_calibrations():
        if calibration.device_name == prediction.conditions.get("calibrated on") == run.conditions.device_name:
            for cost in calibration.exchange:
                if (cost.strategy, cost.workers) == (protocol, found.workers):
                    step_s = cost.step_s(prediction.iteration_s, prediction.parameter_bytes, cores)
                    computing_s = min(step_s, prediction.iteration_s * max(1.0, found.workers / cores))
                    return {"computing": computing_s, "communicating and waiting": step_s - computing_s}
    shares = {"communicating": expected.communication_share, "waiting": expected.waiting_share}
    shares = {"computing": 1.0 - sum(shares.values()), **shares}
    return {name: share * expected.step_s for name, share in shares.items()}


def expected_outcome(run: Run, prediction: Prediction) -> ClusterOutcome:
    """All workers on the machine of the record, which does not say how many GPUs it had: one is assumed."""
    found, conditions = run.distribution, run.conditions
    assert found is not None
    on_cpu = conditions.device == "cpu"
    device = Device(prediction.device, "cpu" if on_cpu else "gpu", cores=conditions.cores if on_cpu else None)
    machine = Machine(
        "this machine", (DeviceCount(device),), vcpus=conditions.cores,
        host_device=None if on_cpu else find_link(USUAL_BUS),
    )  # fmt: skip
    return simulate_on(
        prediction, machine, found.workers, found.strategy, network=None, workers_per_machine=found.workers
    )  # fmt: skip
