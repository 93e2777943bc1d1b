"""Runs the reference networks of a calibration, on a CPU with probes beside each of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

import torch

from paceline.cost.calibration_parts import CalibrationParts
from paceline.cost.compiled_trials import REFERENCE_MODULE
from paceline.cost.drift import DriftProbes
from paceline.cost.reference_networks import QUICK_REFERENCES, REFERENCES, WITH_ADAM
from paceline.measurement.network_times import NetworkTimes
from paceline.measurement.network_timing import time_network
from paceline.step.make import make_step
from paceline.workload import Workload

ITERATIONS = 40
QUICK_ITERATIONS = 24


def measured_references(
    place: torch.device, precisions: Sequence[str], quick: bool, kept: CalibrationParts,
    probes_s: Mapping[int, Mapping[str, float]], watch: Callable[[float], None],
) -> list[NetworkTimes]:  # fmt: skip
    """The reference networks, run by each kind of step in each precision. `probes_s`: usual probe times by threads."""
    kinds = ("graph", "plain", "flat") if place.type == "cuda" else ("flat",)
    jobs = [
        (_workload(name, data, batch, place, precision), step)
        for name, (data, batches) in REFERENCES[place.type].items()
        if name in QUICK_REFERENCES or not quick
        for batch in (batches[:1] if quick else batches)
        for precision in (precisions if place.type == "cuda" else ("float32",))
        if precision != "tf32"
        for step in kinds
        if step != "flat" or place.type == "cpu" or name == "perceptron"
    ]
    iterations = QUICK_ITERATIONS if quick else ITERATIONS
    probes = DriftProbes(place, probes_s) if place.type == "cpu" else None
    measured = []
    for number, (workload, step) in enumerate(jobs):
        name = f"network {workload.network.rpartition(':')[2]} {workload.batch} {step} {workload.precision}"
        choose = functools.partial(make_step, kind=step)
        if probes is None:
            made = kept.make(name, NetworkTimes, functools.partial(time_network, workload, step))
        else:
            made = kept.make(name, NetworkTimes, functools.partial(probes.beside, workload, choose, iterations))
        measured.append(made)
        watch(number / len(jobs))
    return measured


def _workload(name: str, data: str, batch: int, place: torch.device, precision: str) -> Workload:
    optimizer = "adam" if place.type == "cpu" and name in WITH_ADAM else "sgd"
    network = f"{REFERENCE_MODULE}:{name}"
    return Workload(network, data, batch=batch, device=str(place), precision=precision, optimizer=optimizer)
