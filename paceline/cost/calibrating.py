"""Calibrates this machine: times operations in random order, each next to a probe, and a few small networks."""

from __future__ import annotations

import platform
import random
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from statistics import median, quantiles

import torch

from paceline import busy_machine
from paceline.cost.calibration import Calibration, StepOverheads, TrialSet, overheads_key
from paceline.cost.curve import Curve, Trial
from paceline.cost.iteration import Drift, update_alone_s
from paceline.cost.model import CostModel, model_for
from paceline.cost.reference_networks import BATCHES, DATA
from paceline.cost.shape_sampling import TRIALS, Limits, sample_shape
from paceline.cost.step_overheads import ReferenceRun, fit_overheads
from paceline.cost.timing import ELEMENTWISE, Stopwatch, Timed, probe_of
from paceline.cost.trials import calls_of
from paceline.cost.workload_tracing import DataShape, chain_operations, is_chain, trace_workload
from paceline.measurement.links import measure_links
from paceline.measurement.measurement import Measurement
from paceline.measurement.measuring import measure
from paceline.measurement.rates import device_rates
from paceline.step.placement import available_cores, choose_device, device_free_bytes, device_name, set_number_formats
from paceline.workload import Workload

LIMITS = {"cpu": Limits(3e9, 2.0**26), "cuda": Limits(1e12, 2.0**28)}
QUICK_SHARE = 0.15
QUICK_SIZE_DIVISOR = 4
ONE_THREAD_SHARE = 0.6
"""One thread is used for small work only, which needs fewer trials."""
REFERENCE_ITERATIONS = 40
QUICK_ITERATIONS = 24

Watch = Callable[[float], None]


def calibrate(
    device: str = "auto",
    *,
    precisions: Sequence[str] = ("float32",),
    quick: bool = False,
    seed: int = 0,
    watch: Watch | None = None,
) -> Calibration:
    """`watch` is called with the share done. `quick` times a seventh of the sizes: less accurate, ten times faster."""
    place, _ = choose_device(device)
    threads = [0] if place.type == "cuda" else sorted({1, available_cores()})
    rounds = [(precision, count) for precision in precisions for count in threads]
    machine = busy_machine.MachineWatch()
    before = torch.get_num_threads()
    sets, spreads = [], []
    try:
        for number, (precision, count) in enumerate(rounds):
            part_done = _share(watch, 0.8 * number / len(rounds), 0.8 / len(rounds))
            found, probes = _trials(place, precision, count, quick, seed, part_done)
            sets.append(found)
            tenths = [quantiles(seen, n=10) for seen in probes.values() if len(seen) > 1]
            spreads += [(each[8] - each[0]) / each[4] for each in tenths]
    finally:
        torch.set_num_threads(before)
    rates = device_rates(place)
    made = Calibration(
        place.type, device_name(place), tuple(sets), {}, rates.flops, rates.bytes, max(spreads, default=0.0),
        cores=available_cores(),
        memory_bytes=device_free_bytes(place),
    )  # fmt: skip
    made = replace(made, sets=tuple(_fitted(made, each) for each in made.sets))
    step_overheads = _step_overheads(made, place, quick, _share(watch, 0.85, 0.13))
    links = measure_links(place).links
    if watch is not None:
        watch(1.0)
    busy = machine.said()
    return replace(
        made, step_overheads=step_overheads, links=links,
        conditions={
            **({"busy": busy} if busy else {}),
            "torch": torch.__version__, "python": platform.python_version(), "quick": str(quick).lower(),
            "trials": str(sum(len(each.trials) for each in made.sets)), "residual": f"{_residual(made):.4f}",
        },
    )  # fmt: skip


def _share(watch: Watch | None, start: float, width: float) -> Watch:
    return (lambda done: watch(start + width * done)) if watch is not None else (lambda done: None)


def _trials(
    place: torch.device, precision: str, threads: int, quick: bool, seed: int, watch: Watch
) -> tuple[TrialSet, dict[str, list[float]]]:
    if threads:
        torch.set_num_threads(threads)
    set_number_formats(Workload(precision=precision), place)
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    rng = random.Random(seed)
    share = (QUICK_SHARE if quick else 1.0) * (ONE_THREAD_SHARE if threads == 1 else 1.0)
    plan = [kind for kind, count in TRIALS.items() for _ in range(max(6, round(share * count)))]
    rng.shuffle(plan)
    stopwatch, limits = Stopwatch(place), LIMITS[place.type]
    if quick:
        limits = Limits(limits.flops / QUICK_SIZE_DIVISOR, limits.elements / QUICK_SIZE_DIVISOR)
    timed: list[tuple[str, tuple[int, ...], Timed]] = []
    for number, kind in enumerate(plan):
        sizes = sample_shape(kind, rng, limits)
        with torch.cuda.stream(stopwatch.stream) if stopwatch.stream is not None else nullcontext():
            try:
                calls = calls_of(kind, sizes, place, dtype)
            except (RuntimeError, NotImplementedError):
                continue  # the device does not support the operation in this precision, or lacks the memory
        for family, call in calls.items():
            try:
                timed.append((family, sizes, stopwatch.time(call, probe_of(family))))
            except (RuntimeError, NotImplementedError):
                continue
        del calls
        if place.type == "cuda" and number % 20 == 0:
            torch.cuda.empty_cache()
        watch(number / len(plan))
    medians, called_s = stopwatch.probe.medians(), _autograd_call_s(stopwatch)
    trials = [
        Trial(
            family,
            sizes,
            _without_autograd_s(family, time, called_s) * medians[probe_of(family)] / time.probe_s,
            time.host_s,
        )
        for family, sizes, time in timed
    ]
    return TrialSet(precision, threads, tuple(trials), probes_s=medians), stopwatch.probe.seen


def _autograd_call_s(stopwatch: Stopwatch) -> float:
    """The time to start an empty backward pass; a network starts one for all of its layers."""
    if stopwatch.stream is not None:
        return 0.0  # costs nothing in a captured graph
    x = torch.ones(1, requires_grad=True)
    output, gradient = x.view(1), torch.ones(1)
    return stopwatch.time(lambda: torch.autograd.grad(output, [x], gradient, retain_graph=True)).seconds


def _without_autograd_s(family: str, timed: Timed, called_s: float) -> float:
    through_autograd = family.endswith(("_backward", "_weight"))
    direct = family in ("threshold_backward", "tanh_backward", "gelu_backward")
    return max(0.2 * timed.seconds, timed.seconds - called_s) if through_autograd and not direct else timed.seconds


def _fitted(calibration: Calibration, trials: TrialSet) -> TrialSet:
    return replace(trials, shapes=CostModel(calibration, trials.precision, trials.threads).shapes())


def _residual(calibration: Calibration) -> float:
    """Median relative error on a fifth of the trials, for a fit to the other four fifths."""
    missed = []
    for trials in calibration.sets:
        for family, shape in trials.shapes.items():
            own = [trial for trial in trials.trials if trial.family == family]
            if len(own) < 10:
                continue
            left_out = own[::5]
            curve = Curve(family, [trial for number, trial in enumerate(own) if number % 5], shape)
            estimates = curve.estimates([trial.sizes for trial in left_out])
            missed += [abs(g.seconds / t.seconds - 1.0) for g, t in zip(estimates, left_out, strict=True)]
    return median(missed) if missed else float("nan")


def _step_overheads(
    calibration: Calibration, place: torch.device, quick: bool, watch: Watch
) -> dict[str, StepOverheads]:
    """Step overheads by step kind, from measuring the reference networks."""
    steps = ("graph", "flat") if place.type == "cuda" else ("flat",)
    batches = {name: tried[:1] if quick else tried for name, tried in BATCHES.items()}
    jobs = [(name, batch, step) for step in steps for name, tried in batches.items() for batch in tried]
    seen: dict[str, list[ReferenceRun]] = {}
    for number, (name, batch, step) in enumerate(jobs):
        workload = Workload(f"paceline.cost.reference_networks:{name}", DATA, batch=batch, device=str(place))
        found = measure(workload, iterations=QUICK_ITERATIONS if quick else REFERENCE_ITERATIONS, step=step)
        kind, network = reference_run(calibration, workload, DataShape("image", (3, 40, 40), 10, 2048), found)
        seen.setdefault(kind, []).append(network)
        watch(number / len(jobs))
    return {kind: fit_overheads(networks, place.type == "cuda") for kind, networks in seen.items()}


def reference_run(
    calibration: Calibration, workload: Workload, data: DataShape, found: Measurement, drift: Drift | None = None
) -> tuple[str, ReferenceRun]:
    """The key of the step overheads that a measured network informs, and the network with its operations' times."""
    shape, slower = trace_workload(workload, data), drift or {}
    chain = found.step in ("flat", "graph") and is_chain(shape)
    operations = chain_operations(shape.operations, calibration.device == "cuda") if chain else list(shape.operations)
    model = model_for(calibration, workload, shape)
    costed = [
        replace(each, seconds=each.seconds * slower.get(probe_of(each.operation.family), 1.0))
        for each in model.cost(operations)
    ]
    update_s = update_alone_s(model, shape, workload.optimizer) * slower.get(ELEMENTWISE, 1.0)
    return overheads_key(found.step, chain), ReferenceRun(found, costed, update_s)
