"""Predicted against measured, on a suite that is measured fresh: batches never measured, and networks never measured.

Each network is left out in turn: what is known then is the calibration and the other networks' measurements. Plain
roofline stands beside. On a machine that drifts, a probe beside every measurement is divided out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import torch

from benchmarks.options import Options
from benchmarks.table import show as write
from paceline import record
from paceline.cost.calibrating import calibrate, reference_run
from paceline.cost.calibration import Calibration
from paceline.cost.calibrations import load_calibration
from paceline.cost.extrapolation import extrapolate
from paceline.cost.predicting import predict
from paceline.cost.prediction import Prediction
from paceline.cost.step_overheads import ReferenceRun, fit_overheads
from paceline.cost.timing import Probe
from paceline.cost.workload_tracing import DataShape, data_shape_of
from paceline.measurement.measurement import Measurement
from paceline.measurement.measuring import measure
from paceline.trace import Trace
from paceline.workload import Workload

LARGE, MIDDLE = "synthetic:3x224x224/1000:256", "synthetic:3x96x96/100:256"
SMALL, GREY = "synthetic:3x32x32/10:2048", "synthetic:1x28x28/10:20000"
SUITES: dict[str, dict[str, tuple[str, tuple[int, ...]]]] = {
    "cpu": {
        "mlp": (GREY, (50, 100, 200)), "dnn": (GREY, (32, 64, 128)), "lenet5": (GREY, (16, 32, 64)),
        "lstm": (GREY, (25, 50, 100)), "resnet20": (SMALL, (4, 8, 16)), "alexnet": (MIDDLE, (4, 8, 16)),
        "vgg11": (MIDDLE, (1, 2, 4)), "vgg16": (MIDDLE, (1, 2)), "googlenet": (MIDDLE, (2, 4, 8)),
        "resnet18": (MIDDLE, (2, 4, 8)), "resnet50": (MIDDLE, (2, 4)), "textlstm": ("text", (4, 8, 16)),
        "transformer": ("text", (2, 4, 8)), "benchmarks.own_networks:mobile": (SMALL, (8, 16, 32)),
        "benchmarks.own_networks:mixer": (SMALL, (4, 8, 16)),
    },
    "cuda": {
        "mlp": (GREY, (100, 200, 500)), "dnn": (GREY, (64, 128, 256)), "lenet5": (GREY, (64, 128, 256)),
        "lstm": (GREY, (50, 100, 400)), "resnet20": (SMALL, (64, 128, 256)), "alexnet": (LARGE, (32, 64, 128)),
        "vgg11": (LARGE, (12, 24)), "vgg16": (LARGE, (8, 16)), "googlenet": (LARGE, (16, 32, 64)),
        "resnet18": (LARGE, (16, 32, 64)), "resnet50": (LARGE, (16, 32)), "textlstm": ("text", (32, 64, 128)),
        "transformer": ("text", (32, 64, 128)), "benchmarks.own_networks:mobile": (SMALL, (64, 128, 256)),
        "benchmarks.own_networks:mixer": (SMALL, (32, 64, 128)),
    },
}  # fmt: skip
ITERATIONS = {"cpu": 24, "cuda": 100}
PROBES = 30
"""Of each kind, before and after a network."""
DRIFT = "drift of "
ROUNDS = {"cpu": 3, "cuda": 1}
"""A shared CPU is slow for seconds at a time: all are measured in turn, several times, and the middle one counts."""
LARGE_LAYER = 0.05


@dataclass(frozen=True)
class Case:
    """One network at one batch, measured; `drift` is what the probes beside it said."""

    measurement: Measurement
    drift: dict[str, float]

    @property
    def workload(self) -> Workload:
        m = self.measurement
        return Workload(m.name, m.conditions["data"], batch=m.batch, optimizer=m.conditions["optimizer"])

    @property
    def steady_s(self) -> float:
        """An iteration on a machine that does not drift, roughly."""
        return self.measurement.iteration_s.median_s / geometric_mean(self.drift.values() or [1.0])


def measured(options: Options, calibration: Calibration) -> list[Case]:
    """Round by round over everything, so that a slow moment meets all alike."""
    device = options.device
    suite = {
        name: each for name, each in SUITES[device.type].items() if not options.networks or name in options.networks
    }
    jobs = [
        Workload(name, data, batch=b, device=str(device)) for name, (data, batches) in suite.items() for b in batches
    ]
    probes = Probes(device, calibration)
    rounds: list[list[Case]] = [[] for _ in jobs]
    for _ in range(options.rounds or ROUNDS[device.type]):
        for workload, found in zip(jobs, rounds, strict=True):
            found.append(_measured(workload, probes))
            if options.keep is not None:
                place = options.keep / f"{workload.network.replace(':', '-')}-{workload.batch}.json"
                record.save(_middle(found).measurement, place)
    return [_middle(found) for found in rounds]


def _middle(found: list[Case]) -> Case:
    return sorted(found, key=lambda case: case.steady_s)[len(found) // 2]


class Probes:
    """The calibration's probes again, with as many threads as the network beside them."""

    def __init__(self, device: torch.device, calibration: Calibration) -> None:
        self.probe, self.on_cpu = Probe(device), device.type == "cpu"
        self.usual = {each.threads: each.probes_s for each in calibration.sets}
        self.threads = max(self.usual)

    def drift(self) -> dict[str, float]:
        if self.on_cpu:
            torch.set_num_threads(self.threads)
        return {
            kind: median(self.probe.seconds(kind) for _ in range(PROBES)) / usual
            for kind, usual in self.usual[self.threads].items()
        }


def _measured(workload: Workload, probes: Probes) -> Case:
    before = probes.drift()
    found = measure(workload, iterations=ITERATIONS[probes.probe.device.type], step="flat" if probes.on_cpu else "auto")
    if probes.on_cpu and int(found.conditions["threads"]) != probes.threads:
        probes.threads = int(found.conditions["threads"])
        before = probes.drift()
    after = probes.drift()
    drift = {kind: (seconds + after[kind]) / 2 for kind, seconds in before.items()}
    said = ", ".join(f"{kind} {value:.2f}" for kind, value in drift.items())
    write(f"{workload.network} at {workload.batch}: {1e3 * found.iteration_s.median_s:.2f} ms, drift {said}")
    if not probes.on_cpu:
        torch.cuda.empty_cache()
    conditions = {**found.conditions, **{f"{DRIFT}{kind}": f"{value}" for kind, value in drift.items()}}
    return Case(replace(found, trace=Trace(), samples=(), kept=(), conditions=conditions), drift)


def loaded(folder: Path) -> list[Case]:
    found = [record.load(path) for path in sorted(folder.glob("*.json"))]
    return [Case(m, _drift_of(m)) for m in found if isinstance(m, Measurement)]


def _drift_of(measurement: Measurement) -> dict[str, float]:
    said = measurement.conditions.items()
    return {name.removeprefix(DRIFT): float(value) for name, value in said if name.startswith(DRIFT)}


def shape_of(case: Case, known: dict[str, DataShape]) -> DataShape:
    data = case.workload.data
    if data not in known:
        known[data] = data_shape_of(case.workload)
    return known[data]


def seen_by_all(
    cases: list[Case], calibration: Calibration, known: dict[str, DataShape]
) -> list[tuple[str, ReferenceRun]]:
    """Each case as a reference run: the key of the step overheads it informs, and its operations alone."""
    return [reference_run(calibration, c.workload, shape_of(c, known), c.measurement, c.drift) for c in cases]


def left_out(name: str, seen: list[tuple[str, ReferenceRun]], calibration: Calibration) -> Calibration:
    """The calibration with step overheads fitted to all networks but one."""
    others: dict[str, list[ReferenceRun]] = {}
    for key, each in seen:
        if each.measurement.name != name:
            others.setdefault(key, []).append(each)
    on_gpu = calibration.device == "cuda"
    return replace(
        calibration,
        step_overheads={**calibration.step_overheads, **{k: fit_overheads(v, on_gpu) for k, v in others.items()}},
    )


@dataclass(frozen=True)
class Result:
    case: Case
    alone: Prediction
    """From the calibration and nothing else."""
    others: Prediction
    """With the other networks' measurements."""
    batch: Prediction | None
    """From the same network's other batches."""

    def error(self, made: Prediction) -> float:
        return made.iteration_s / self.case.measurement.iteration_s.median_s - 1.0

    def layers(self) -> list[tuple[str, float, bool]]:
        """Of layers that take at least 5 %: error, and whether the interval held."""
        whole, found = self.case.measurement.iteration_s.median_s, []
        made = {layer.name: layer for layer in self.others.layers}
        for layer in self.case.measurement.layers:
            took = layer.forward_s.median_s + layer.backward_s.median_s
            if took >= LARGE_LAYER * whole and layer.name in made:
                guess = made[layer.name]
                both = guess.forward_s + guess.backward_s
                found.append((layer.name, both / took - 1.0, guess.low_s <= took <= guess.high_s))
        return found


def evaluate(cases: list[Case], calibration: Calibration) -> list[Result]:
    known: dict[str, DataShape] = {}
    seen = seen_by_all(cases, calibration, known)
    knowing = {name: left_out(name, seen, calibration) for name in {case.measurement.name for case in cases}}
    results = []
    for case in cases:
        data, step, drift = shape_of(case, known), case.measurement.step, case.drift
        same = [c.measurement for c in cases if c.measurement.name == case.measurement.name and c is not case]
        results.append(
            Result(
                case,
                predict(case.workload, calibration, step=step, data=data, drift=drift),
                predict(case.workload, knowing[case.measurement.name], step=step, data=data, drift=drift),
                extrapolate(same, batch=case.measurement.batch) if len(same) > 1 else None,
            )
        )
    return results


def show(results: list[Result]) -> dict[str, Any]:
    write(f"{'network':32} {'batch':>5} {'measured':>11} {'others':>7} {'alone':>7} {'batch':>7} {'roofline':>8}")
    for result in results:
        m = result.case.measurement
        roofline = result.alone.roofline_s / m.iteration_s.median_s - 1.0
        batch = f"{result.error(result.batch):+7.1%}" if result.batch else ""
        write(
            f"{m.name:32} {m.batch:5} {1e3 * m.iteration_s.median_s:8.3f} ms {result.error(result.others):+7.1%} "
            f"{result.error(result.alone):+7.1%} {batch:>7} {roofline:+8.0%}"
        )
    layers = [layer for result in results for layer in result.layers()]
    whole = [abs(r.error(r.others)) for r in results]
    alone = [abs(r.error(r.alone)) for r in results]
    batches = [abs(r.error(r.batch)) for r in results if r.batch]
    rooflines = [abs(r.alone.roofline_s / r.case.measurement.iteration_s.median_s - 1.0) for r in results]
    held = [r.others.low_s <= r.case.measurement.iteration_s.median_s <= r.others.high_s for r in results]
    write(f"networks never measured: {median(whole):.1%} in the median of {len(whole)}")
    write(f"  from the calibration alone: {median(alone):.1%}; plain roofline: {median(rooflines):.1%}")
    if layers:
        write(f"  their layers of at least 5 %: {median(abs(e) for _, e, _ in layers):.1%} of {len(layers)}")
        write(f"  the 90 % interval of a layer held {sum(h for *_, h in layers) / len(layers):.0%}")
    write(f"  the 90 % interval of an iteration held {sum(held) / len(held):.0%}")
    if batches:
        write(f"batches never measured: {median(batches):.1%} in the median of {len(batches)}")
    return {
        "networks": whole, "alone": alone, "batches": batches, "roofline": rooflines,
        "layers": [abs(error) for _, error, _ in layers], "held": held, "layers held": [h for *_, h in layers],
    }  # fmt: skip


def run(options: Options) -> dict[str, Any]:
    """With `--load DIR` what `--keep DIR` kept is evaluated again, and nothing is run."""
    folder = options.load or options.keep
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    place = folder / "calibration.json" if folder is not None else None
    if options.load is not None and place is not None:
        calibration, cases = load_calibration(place), loaded(options.load)
    else:
        calibration = calibrate(str(options.device), quick=options.quick)
        if place is not None:
            record.save(calibration, place)
        cases = measured(options, calibration)
    trials, residual = calibration.conditions.get("trials"), calibration.residual
    write(f"{calibration.device_name}: {trials} trials, off by {residual:.1%} on sizes not tried")
    return show(evaluate(cases, calibration))
