"""What timing a network's own operations adds to a quick calibration of this CPU, for networks of many kinds.

Each network is predicted twice, from sampled sizes alone and with its own operations timed one at a time, then
measured. Nothing of it was measured before.
"""

from __future__ import annotations

import functools
from statistics import median
from typing import Any

from benchmarks.options import Options
from benchmarks.predict import LARGE_LAYER
from benchmarks.table import show, show_table
from paceline.cost.calibrating import calibrate
from paceline.cost.own_operations import with_own_operations
from paceline.cost.predicting import predict
from paceline.cost.verification import Comparison, compare_measurement
from paceline.formatting import percent, signed_percent
from paceline.measurement.measuring import measure
from paceline.step.make import make_step
from paceline.step.placement import cpu_settings_restored
from paceline.workload import resolve

IMAGES, PLAIN, SMALL = "synthetic:3x64x64/100:256", "synthetic:3x32x32/10:512", "digits"
NETWORKS: dict[str, tuple[str, int]] = {
    "lenet5": (SMALL, 32), "vae": (SMALL, 64), "resnet20": (PLAIN, 16),
    "benchmarks.unseen_networks:mobilenet": (IMAGES, 4), "benchmarks.own_networks:mixer": (PLAIN, 16),
    "benchmarks.own_networks:mobile": (PLAIN, 16), "transformer": ("", 16), "gan": (SMALL, 64), "textlstm": ("", 32),
}  # fmt: skip
"""Data and batch size of each; without data, those of the network."""


def _errors(rows: list[Comparison]) -> dict[str, Any]:
    """Of the iteration and of the layers that take at least 5 % of it, and how many intervals covered the times."""
    whole, layers = rows[0], [row for row in rows if row.kind == "layer"]
    known = [row.within for row in rows if row.within is not None]
    large = [abs(row.error) for row in layers if row.measured_s >= LARGE_LAYER * whole.measured_s]
    return {"iteration": whole.error, "inside": whole.within, "layers": large, "covered": sum(known) / len(known)}


def _shown(found: dict[str, Any]) -> list[str]:
    layers = percent(median(found["layers"]), 1) if found["layers"] else "--"
    return [
        signed_percent(found["iteration"]) + ("" if found["inside"] else " (outside)"),
        layers,
        percent(found["covered"]),
    ]


def run(options: Options) -> dict[str, Any]:
    if options.device.type != "cpu":
        return {"left out": "a network's own operations are timed on a CPU"}
    chosen = {name: each for name, each in NETWORKS.items() if not options.networks or name in options.networks}
    base = calibrate("cpu", quick=True)
    found: dict[str, Any] = {}
    for name, (data, batch) in chosen.items():
        workload = resolve(name, {"batch": batch, "device": "cpu", **({"data": data} if data else {})})
        with cpu_settings_restored():
            own = with_own_operations(base, workload, base.references)
        predictions = {"sampled": predict(workload, base), "own": predict(workload, own)}
        measured = measure(workload, choose=functools.partial(make_step, kind="flat"))
        found[name] = {how: _errors(list(compare_measurement(made, measured))) for how, made in predictions.items()}
    rows = [
        [name.rpartition(":")[2], *(words for how in ("sampled", "own") for words in _shown(each[how]))]
        for name, each in found.items()
    ]
    columns = ("iteration", "layers", "covered")
    show_table(
        "errors of the iteration and of layers of at least 5 % of it (median); intervals that cover the measured time",
        ("network", *(f"{how}: {what}" for how in ("sampled", "own") for what in columns)), rows,
    )  # fmt: skip
    for how in ("sampled", "own"):
        iterations = [abs(each[how]["iteration"]) for each in found.values()]
        layers = [error for each in found.values() for error in each[how]["layers"]]
        show(f"{how}: iterations {percent(median(iterations), 1)}, layers {percent(median(layers), 1)} in the median")
    return found
