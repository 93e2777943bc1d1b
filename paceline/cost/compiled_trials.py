"""Runs reference networks compiled and not compiled, for the ratios by which compiled steps are predicted."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

import torch

from paceline.cost.calibration import CompiledRatio
from paceline.cost.compiled_ratio import MeasuredRatio, network_kind, ratios_by_kind
from paceline.cost.reference_networks import REFERENCES
from paceline.cost.workload_tracing import data_shape_of, trace_workload
from paceline.errors import PacelineError
from paceline.measurement.network_timing import compare_steps
from paceline.step.compiled import check_compiler
from paceline.workload import Workload

REFERENCE_MODULE = "paceline.cost.reference_networks"
COMPARED_WITH = {"cpu": "flat", "cuda": "graph"}
COMPILED = {
    "cpu": ("convolutional", "attention", "perceptron"),
    "cuda": ("bottleneck", "patches", "perceptron", "language", "separable"),
}
BUDGET_S = {"cpu": 45.0, "cuda": 120.0}
"""No further network is begun that would take longer than this in all; compiling one takes 5 to 30 s."""


def compiled_ratios(
    place: torch.device, precisions: Sequence[str] = ("float32",)
) -> tuple[dict[str, CompiledRatio], str]:
    """The ratios by kind of network, and why there are none or fewer, if so."""
    missing = check_compiler()
    if missing:
        return {}, f"compiled steps were not measured: {missing}"
    measured: list[MeasuredRatio] = []
    failed: list[str] = []
    begun, longest = perf_counter(), 0.0
    on_gpu = place.type == "cuda"
    usual = [precision for precision in reversed(precisions) if precision != "tf32"] if on_gpu else ["float32"]
    for name, precision in ((name, precision) for name in COMPILED[place.type] for precision in usual):
        before = perf_counter()
        if before - begun + longest > BUDGET_S[place.type]:
            failed.append(f"{name} in {precision} (no time left)")
            continue
        data, batches = REFERENCES[place.type][name]
        workload = Workload(
            f"{REFERENCE_MODULE}:{name}", data, batch=batches[-1], device=str(place), precision=precision
        )
        try:
            ratio = compare_steps(workload, "compiled", COMPARED_WITH[place.type])
        except PacelineError as error:
            failed.append(f"{name} in {precision} ({error})")
        else:
            operations = trace_workload(workload, data_shape_of(workload), on_gpu=on_gpu).operations
            measured.append(MeasuredRatio(f"{name} at {workload.batch}", network_kind(operations), ratio, precision))
        longest = max(longest, perf_counter() - before)
    said = f"not measured compiled: {', '.join(failed)}" if failed else ""
    return ratios_by_kind(measured, COMPARED_WITH[place.type]), said
