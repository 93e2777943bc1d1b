"""How far off the reference networks of a calibration are, each predicted from the others, in every mode.

Nothing is measured, so this runs anywhere: `--load FILE` names the calibration, by default the included ones. These
errors are those that intervals are made from.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from benchmarks.options import Options
from benchmarks.predict import LARGE_LAYER
from benchmarks.table import show_table
from paceline.cost.calibration import Calibration
from paceline.cost.calibrations import bundled_calibrations, load_calibration
from paceline.cost.iteration import Iteration
from paceline.cost.reference_fit import costed_references, left_out, same_step
from paceline.cost.reference_run import ReferenceRun
from paceline.formatting import percent

MIN_RUNS = 6
"""Kinds of steps with fewer runs are left out: one network of them cannot be predicted from the others."""
COLUMNS = (
    "mode", "cases", "iteration", "within 25 %", "largest", "interval covered", "its half-width",
    "layers of 5 %", "their intervals covered",
)  # fmt: skip

Case = tuple[ReferenceRun, Iteration]


def layer_errors(case: Case) -> list[tuple[float, bool]]:
    """Of layers of at least 5 % of the iteration: the error, and whether the interval covered it."""
    run, made = case
    predicted = {layer.name: layer for layer in made.layers}
    found = []
    for name, (forward_s, backward_s) in run.times.layers.items():
        took_s, layer = forward_s + backward_s, predicted.get(name)
        if layer is not None and took_s >= LARGE_LAYER * run.times.iteration_s:
            error = (layer.forward_s + layer.backward_s) / took_s - 1
            found.append((error, layer.low_s <= took_s <= layer.high_s))
    return found


def summary(mode: str, cases: Sequence[Case]) -> dict[str, Any]:
    errors = [abs(made.seconds / run.times.iteration_s - 1) for run, made in cases]
    covered = [made.low_s <= run.times.iteration_s <= made.high_s for run, made in cases]
    layers = [layer for case in cases for layer in layer_errors(case)]
    return {
        "mode": mode, "cases": len(cases), "iteration": median(errors), "within 25 %": sum(e <= 0.25 for e in errors),
        "largest": max(errors), "interval covered": sum(covered) / len(cases),
        "its half-width": median((made.high_s - made.low_s) / 2 / made.seconds for _, made in cases),
        "layers of 5 %": median(abs(error) for error, _ in layers) if layers else float("nan"),
        "their intervals covered": sum(held for _, held in layers) / max(1, len(layers)),
    }  # fmt: skip


def evaluate(calibration: Calibration) -> list[dict[str, Any]]:
    on_gpu = calibration.device == "cuda"
    _, runs = costed_references(calibration, calibration.references)
    return [
        summary(key, list(left_out(own, on_gpu, same_step(own, runs), with_error=True)))
        for key, own in runs.items()
        if len(own) >= MIN_RUNS
    ]


def run(options: Options) -> dict[str, Any]:
    if options.load is not None:
        found = load_calibration(options.load)
        known = {found.device_name: found}
    else:
        known = bundled_calibrations()
    results = {name: evaluate(calibration) for name, calibration in known.items()}
    for name, rows in results.items():
        shown = [
            [percent(value, 1) if isinstance(value, float) else str(value) for value in row.values()] for row in rows
        ]
        show_table(f"{name}: each reference network predicted from the others", COLUMNS, shown)
    return results
