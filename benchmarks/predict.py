"""Predicted against measured, for networks that the calibration knows nothing of, in every mode people train in.

A mode is a kind of step and a precision. Cases that `--keep DIR` kept are not measured again, so that a long suite can
be run mode by mode and continued. Plain roofline stands beside. On a CPU a probe beside every measurement is divided
out, because a shared machine drifts.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean, median
from time import perf_counter
from typing import Any

import msgspec
import torch

from benchmarks.options import Options
from benchmarks.table import show as write
from paceline import record
from paceline.cost.calibrating import calibrate
from paceline.cost.calibration import Calibration
from paceline.cost.calibrations import load_calibration
from paceline.cost.drift import DriftProbes, usual_probes_s
from paceline.cost.predicting import predict
from paceline.cost.prediction import Prediction
from paceline.cost.workload_tracing import DataShape, data_shape_of
from paceline.measurement.network_times import NetworkTimes
from paceline.measurement.network_timing import time_network
from paceline.training.step_choice import choose_step
from paceline.workload import Workload

LARGE, MIDDLE = "synthetic:3x224x224/1000:256", "synthetic:3x96x96/100:256"
SMALL, GREY = "synthetic:3x32x32/10:2048", "synthetic:1x28x28/10:20000"
OWN = "benchmarks.unseen_networks:"
Suite = dict[str, tuple[str, tuple[int, ...]]]
SUITES: dict[str, Suite] = {
    "cpu": {
        "mlp": (GREY, (50, 100, 200)), "dnn": (GREY, (32, 64, 128)), "lenet5": (GREY, (16, 32, 64)),
        "lstm": (GREY, (25, 50, 100)), "resnet20": (SMALL, (4, 8, 16)), "alexnet": (MIDDLE, (4, 8, 16)),
        "vgg11": (MIDDLE, (1, 2, 4)), "vgg16": (MIDDLE, (1, 2)), "googlenet": (MIDDLE, (2, 4, 8)),
        "resnet18": (MIDDLE, (2, 4, 8)), "resnet50": (MIDDLE, (2, 4)), "textlstm": ("text", (4, 8, 16)),
        "transformer": ("text", (2, 4, 8)), "benchmarks.own_networks:mobile": (SMALL, (8, 16, 32)),
        "benchmarks.own_networks:mixer": (SMALL, (4, 8, 16)), f"{OWN}mobilenet": (LARGE, (1, 2)),
        f"{OWN}vit": (LARGE, (1, 2)), f"{OWN}convnext": (LARGE, (1, 2)), f"{OWN}unet": (MIDDLE, (1, 2)),
        f"{OWN}wavenet": ("tokens:256/256:64", (1, 4)), f"{OWN}wide_mlp": (SMALL, (16, 128)),
    },
    "cuda": {
        "mlp": (GREY, (100, 500)), "dnn": (GREY, (64, 256)), "lenet5": (GREY, (64, 512)),
        "lstm": (GREY, (50, 400)), "resnet20": (SMALL, (64, 512)), "alexnet": (LARGE, (32, 128)),
        "vgg11": (LARGE, (12, 48)), "vgg16": (LARGE, (8, 32)), "googlenet": (LARGE, (16, 128)),
        "resnet18": (LARGE, (16, 128)), "resnet50": (LARGE, (16, 96)), "textlstm": ("text", (32, 256)),
        "transformer": ("text", (32, 256)), "benchmarks.own_networks:mobile": (SMALL, (64, 1024)),
        "benchmarks.own_networks:mixer": (SMALL, (32, 512)), f"{OWN}mobilenet": (LARGE, (16, 96)),
        f"{OWN}densenet": (LARGE, (16, 64)), f"{OWN}vit": (LARGE, (16, 128)), f"{OWN}convnext": (LARGE, (16, 64)),
        f"{OWN}gpt": ("tokens:512/32000:128", (2, 16)), f"{OWN}unet": (MIDDLE, (16, 128)),
        f"{OWN}wavenet": ("tokens:256/256:512", (16, 256)), f"{OWN}wide_mlp": (SMALL, (64, 1024)),
    },
}  # fmt: skip
MODES = {
    "cpu": (("flat", "float32"),),
    "cuda": (("graph", "float32"), ("plain", "float32"), ("graph", "bfloat16"), ("plain", "bfloat16")),
}
ITERATIONS = 24
ROUNDS = 3
"""A shared CPU is slow for seconds at a time: all are measured in turn, several times, and the middle one counts."""
LARGE_LAYER = 0.05


@dataclass(frozen=True)
class Case:
    network: str
    data: str
    batch: int
    step: str
    precision: str

    @property
    def file(self) -> str:
        return f"{self.network.replace(':', '-')}-{self.batch}-{self.step}-{self.precision}.json"

    def workload(self, device: torch.device) -> Workload:
        return Workload(self.network, self.data, batch=self.batch, device=str(device), precision=self.precision)


def cases_of(options: Options, kind: str) -> list[Case]:
    return [
        Case(name, data, batch, step, precision)
        for step, precision in MODES[kind]
        if not options.modes or f"{step} {precision}" in options.modes
        for name, (data, batches) in SUITES[kind].items()
        if not options.networks or name in options.networks
        for batch in (batches[:1] if options.quick else batches)
    ]


def measured(options: Options, calibration: Calibration) -> list[NetworkTimes]:
    """Cases not kept yet, round by round over everything, so that a slow moment meets all alike."""
    device, folder = options.device, options.keep
    cases = cases_of(options, device.type)
    kept = {case: loaded for case in cases if folder is not None and (loaded := load(folder / case.file)) is not None}
    left = [case for case in cases if case not in kept]
    found: dict[Case, list[NetworkTimes]] = {case: [] for case in left}
    probes = DriftProbes(device, usual_probes_s(calibration.sets)) if device.type == "cpu" else None
    for _ in range(options.rounds or ROUNDS if device.type == "cpu" else 1):
        for case in left:
            start = perf_counter()
            if probes is None:
                found[case].append(time_network(case.workload(device), case.step))
                torch.cuda.empty_cache()
            else:
                choose = functools.partial(choose_step, asked=case.step)
                found[case].append(probes.beside(case.workload(device), choose, ITERATIONS))
            middle = sorted(found[case], key=steady_s)[len(found[case]) // 2]
            took = perf_counter() - start
            name = f"{case.network} {case.batch} {case.step} {case.precision}"
            write(f"{name}: {1e3 * middle.iteration_s:.2f} ms ({took:.1f} s)")
            kept[case] = middle
            if folder is not None:
                (folder / case.file).write_bytes(msgspec.json.encode(middle))
    return [kept[case] for case in cases]


def load(path: Path) -> NetworkTimes | None:
    return msgspec.json.decode(path.read_bytes(), type=NetworkTimes) if path.is_file() else None


def steady_s(times: NetworkTimes) -> float:
    """An iteration on a machine that does not drift, roughly."""
    return times.iteration_s / geometric_mean(times.drift.values() or [1.0])


@dataclass(frozen=True)
class Result:
    times: NetworkTimes
    predicted: Prediction

    @property
    def error(self) -> float:
        return self.predicted.iteration_s / self.times.iteration_s - 1.0

    @property
    def held(self) -> bool:
        return self.predicted.low_s <= self.times.iteration_s <= self.predicted.high_s

    @property
    def width(self) -> float:
        """Half of the 90 % interval, as a share of the prediction."""
        return (self.predicted.high_s - self.predicted.low_s) / 2 / self.predicted.iteration_s

    @property
    def roofline(self) -> float:
        return self.predicted.roofline_s / self.times.iteration_s - 1.0

    def layers(self) -> list[tuple[str, float, bool]]:
        """Of layers that take at least 5 %: error, and whether the interval held."""
        made = {layer.name: layer for layer in self.predicted.layers}
        found = []
        for name, (forward, backward) in self.times.layers.items():
            took = forward + backward
            if took >= LARGE_LAYER * self.times.iteration_s and name in made:
                guess = made[name]
                both = guess.forward_s + guess.backward_s
                found.append((name, both / took - 1.0, guess.low_s <= took <= guess.high_s))
        return found


def evaluate(times: list[NetworkTimes], calibration: Calibration) -> list[Result]:
    known: dict[str, DataShape] = {}
    results = []
    for each in times:
        if each.data not in known:
            known[each.data] = data_shape_of(each.workload)
        made = predict(each.workload, calibration, step=each.step, data=known[each.data], drift=each.drift)
        results.append(Result(each, made))
    return results


def show(results: list[Result]) -> dict[str, Any]:
    summary = {}
    for mode in dict.fromkeys((r.times.step, r.times.precision) for r in results):
        mine = [r for r in results if (r.times.step, r.times.precision) == mode]
        summary[" ".join(mode)] = _show_mode(" ".join(mode), mine)
    return summary


def _show_mode(mode: str, results: list[Result]) -> dict[str, Any]:
    write(f"{mode}\n{'network':40} {'batch':>5} {'measured':>11} {'predicted':>11} {'error':>7} {'roofline':>8}")
    for result in results:
        m = result.times
        mark = "" if result.held else " outside its interval"
        write(
            f"{m.name.rpartition('.')[2]:40} {m.batch:5} {1e3 * m.iteration_s:8.3f} ms "
            f"{1e3 * result.predicted.iteration_s:8.3f} ms {result.error:+7.1%} {result.roofline:+8.0%}{mark}"
        )
    layers = [layer for result in results for layer in result.layers()]
    errors = [abs(result.error) for result in results]
    write(f"  iterations: {median(errors):.1%} in the median of {len(errors)}, {max(errors):.1%} at most")
    write(f"  plain roofline: {median(abs(r.roofline) for r in results):.1%}")
    if layers:
        write(f"  layers of at least 5 %: {median(abs(e) for _, e, _ in layers):.1%} in the median of {len(layers)}")
        write(f"  the 90 % interval of a layer held {sum(h for *_, h in layers) / len(layers):.0%}")
    held = sum(r.held for r in results) / len(results)
    write(f"  the 90 % interval of an iteration held {held:.0%}, half-width {median(r.width for r in results):.0%}\n")
    return {
        "errors": [r.error for r in results], "layers": [error for _, error, _ in layers],
        "held": [r.held for r in results], "layers held": [h for *_, h in layers],
    }  # fmt: skip


def run(options: Options) -> dict[str, Any]:
    """With `--load DIR` what `--keep DIR` kept, on this machine or another, is evaluated again, and nothing is run."""
    folder = options.load or options.keep
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    place = folder / "calibration.json" if folder is not None else None
    if place is not None and place.is_file():
        calibration = load_calibration(place)
    else:
        precisions = tuple(dict.fromkeys(precision for _, precision in MODES[options.device.type]))
        calibration = calibrate(str(options.device), precisions=precisions, quick=options.quick)
        if place is not None:
            record.save(calibration, place)
    if options.load is not None:
        cases = cases_of(options, calibration.device)
        times = [each for case in cases if (each := load(options.load / case.file)) is not None]
    else:
        times = measured(options, calibration)
    trials, residual = calibration.conditions.get("trials"), calibration.residual
    write(f"{calibration.device_name}: {trials} trials, off by {residual:.1%} on sizes not tried\n")
    return show(evaluate(times, calibration))
