"""Calibrates this machine: times operations in random order, each next to a probe, and a few small networks."""

from __future__ import annotations

import datetime
import functools
import platform
import random
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from statistics import median, quantiles

import torch

from paceline import busy_machine
from paceline.cost.calibration import Calibration, TrialSet
from paceline.cost.calibration_parts import CalibrationParts, CompiledPart, DevicePart, TrialPart
from paceline.cost.compiled_trials import compiled_ratios
from paceline.cost.curve import Curve, Trial
from paceline.cost.device_calibration import find_catalogue_device
from paceline.cost.drift import usual_probes_s
from paceline.cost.families import CONVOLUTIONS, IMAGE_FAMILIES, MATRIX_UNITS
from paceline.cost.model import fitted_shapes
from paceline.cost.own_operations import with_own_operations
from paceline.cost.reference_fit import with_references
from paceline.cost.reference_measuring import measured_references
from paceline.cost.shape_sampling import TRIALS, Limits, sample_shape
from paceline.cost.timing import Stopwatch, Timed, probe_of
from paceline.cost.trials import calls_of
from paceline.cost.workload_tracing import data_shape_of, trace_workload
from paceline.cost.workspaces import measured_workspaces
from paceline.measurement.links import LinkSpeed, measure_links
from paceline.measurement.rates import device_rates
from paceline.step.host_memory import keep_freed_memory
from paceline.step.placement import (
    available_cores,
    choose_device,
    cpu_settings_restored,
    device_free_bytes,
    device_name,
    set_number_formats,
)
from paceline.workload import Workload

LIMITS = {"cpu": Limits(3e9, 2.0**26, smaller=0.5), "cuda": Limits(1e12, 2.0**28, larger=0.6)}
QUICK_SHARE = 0.15
QUICK_SIZE_DIVISOR = 4
ONE_THREAD_SHARE, ONE_THREAD_SMALLER = 0.6, 0.7
"""One thread is used for small work only, which needs fewer trials, and mostly small ones."""
LEAST_TRIALS, LEAST_OF_A_KIND = 6, {"softmax": 12, "recurrent": 14, "max_pool": 10, "average_pool": 8, "attention": 10}
"""In a quick calibration: more of those that most networks have, or whose time depends on several sizes."""
IMAGE_SHARES = {(True, False): 1.0, (True, True): 0.3, (False, False): 0.5, (False, True): 0.7}
"""On a GPU, of operations on images, by whether they are in float32 and with the channels last: most time of a
calibration is spent while the library tries its algorithms for convolutions, and these layouts are not used alike."""
CPU_CHANNELS_FIRST_SHARE = 0.4
"""On a CPU, of operations on images with the channels first: training has them last, if it is not asked otherwise."""
REFINED_SHARE = 0.3
"""Of the trials, added to those of an earlier calibration."""

Watch = Callable[[float], None]


def calibrate(
    device: str = "auto",
    *,
    precisions: Sequence[str] = ("float32",),
    quick: bool = False,
    seed: int = 0,
    watch: Watch | None = None,
    parts: CalibrationParts | None = None,
    earlier: Calibration | None = None,
    workload: Workload | None = None,
) -> Calibration:
    """`watch` is called with the share done. `quick` times a seventh of the sizes: less accurate, ten times faster.
    `parts` keeps what is measured; what it has already is not measured again. The trials of an `earlier` calibration of
    the device count, too, and fewer are added; everything else is measured again. The operations of a `workload` are
    timed as they are, on a CPU."""
    if workload is not None:
        trace_workload(workload, data_shape_of(workload))  # what cannot be traced is said now, not after the trials
    kept = parts or CalibrationParts()
    place = _place(device, kept)
    machine = busy_machine.MachineWatch()
    measured_on = kept.make("device", DevicePart, lambda: _device_part(place))
    rounds = _rounds(place, precisions)
    timed = []
    with cpu_settings_restored():
        if place.type == "cpu":
            keep_freed_memory()  # as training does
        for number, asked in enumerate(rounds):
            part_done = _share(watch, 0.7 * number / len(rounds), 0.7 / len(rounds))
            known = _known(earlier, asked)
            time = functools.partial(_trial_part, place, asked, quick, seed, part_done, known)
            name = f"trials {asked.name}{' quick' if quick else ''}{' added' if known is not None else ''}"
            timed.append(_joined(known, kept.make(name, TrialPart, time)))
    probes_s = usual_probes_s([part.trials for part in timed])
    references = measured_references(place, precisions, quick, kept, probes_s, _share(watch, 0.7, 0.15))
    compiled = CompiledPart() if quick else kept.make(
        "compiled", CompiledPart, lambda: CompiledPart(*compiled_ratios(place, precisions))
    )  # fmt: skip
    links = kept.make("links", tuple[LinkSpeed, ...], lambda: measure_links(place).links)
    sets = tuple(replace(part.trials, shapes=fitted_shapes(part.trials)) for part in timed)
    made = Calibration(
        place.type, measured_on.name, sets, {}, measured_on.flops, measured_on.bytes,
        max((part.spread for part in timed), default=0.0),
        cores=measured_on.cores, memory_bytes=measured_on.memory_bytes, links=links, compiled=compiled.ratios,
    )  # fmt: skip
    made = with_references(made, references)
    if workload is not None:
        with cpu_settings_restored():
            keep_freed_memory()
            made = with_own_operations(made, workload, references, _share(watch, 0.85, 0.15))
    if watch is not None:
        watch(1.0)
    busy = machine.said()
    return replace(
        made,
        conditions={
            **({"busy": busy} if busy else {}),
            **({"took": took} if (took := kept.said()) else {}),
            **({"compiled": compiled.missing} if compiled.missing else {}),
            **({"refines": earlier.conditions.get("date", "")} if earlier is not None else {}),
            **_origin(made), "date": measured_on.date,
            "torch": measured_on.torch, "python": measured_on.python, "quick": str(quick).lower(),
            "trials": str(sum(len(each.trials) for each in made.sets)), "residual": f"{_residual(made):.4f}",
        },
    )  # fmt: skip


def _place(device: str, kept: CalibrationParts) -> torch.device:
    """The device; if it was measured before and is not here, its parts are only fitted."""
    if kept.measured_on() == "cuda" and not torch.cuda.is_available():
        return torch.device("cuda")
    return choose_device(device)[0]


def _device_part(place: torch.device) -> DevicePart:
    memory_bytes, rates = device_free_bytes(place), device_rates(place)  # before trials fill the allocator's cache
    return DevicePart(
        place.type, device_name(place), available_cores(), memory_bytes, rates.flops, rates.bytes,
        datetime.date.today().isoformat(), str(torch.__version__), platform.python_version(),
    )  # fmt: skip


def _origin(made: Calibration) -> dict[str, str]:
    """The date, and the device's name in the catalogue; a few cores of a CPU are not that CPU."""
    sheet = find_catalogue_device(made.device_name)
    whole = sheet is not None and (made.device == "cuda" or sheet.cores == made.cores)
    named = {"catalogue name": sheet.name} if sheet is not None and whole else {}
    return {"date": datetime.date.today().isoformat(), **named}


def _share(watch: Watch | None, start: float, width: float) -> Watch:
    return (lambda done: watch(start + width * done)) if watch is not None else (lambda done: None)


@dataclass(frozen=True)
class _Round:
    """Operations to time in one precision, memory format and number of threads."""

    precision: str
    threads: int
    channels_last: bool = False

    @property
    def name(self) -> str:
        return f"{self.precision} {self.threads} {self.memory_format}"

    @property
    def memory_format(self) -> str:
        return "channels_last" if self.channels_last else "contiguous"

    def share(self, kind: str) -> float:
        """Of the trials of a kind."""
        image = kind in IMAGE_FAMILIES
        if self.threads:
            layout = CPU_CHANNELS_FIRST_SHARE if image and not self.channels_last else 1.0
            return layout * (ONE_THREAD_SHARE if self.threads == 1 else 1.0)
        return IMAGE_SHARES[self.precision == "float32", self.channels_last] if image else 1.0


def _rounds(place: torch.device, precisions: Sequence[str]) -> list[_Round]:
    threads = sorted({1, available_cores()}) if place.type == "cpu" else [0]
    return [_Round(p, each, channels_last) for p in precisions for each in threads for channels_last in (False, True)]


def _known(earlier: Calibration | None, asked: _Round) -> TrialSet | None:
    """What an earlier calibration measured in the same round."""
    wanted = asked.precision, asked.threads, asked.memory_format
    sets = earlier.sets if earlier is not None else ()
    return next((each for each in sets if (each.precision, each.threads, each.memory_format) == wanted), None)


def _joined(known: TrialSet | None, added: TrialPart) -> TrialPart:
    if known is None:
        return added
    return replace(added, trials=replace(added.trials, trials=(*known.trials, *added.trials.trials)))


def _trial_part(
    place: torch.device, asked: _Round, quick: bool, seed: int, watch: Watch, known: TrialSet | None
) -> TrialPart:
    found, probes = _trials(place, asked, quick, seed, watch, known)
    tenths = [quantiles(seen, n=10) for seen in probes.values() if len(seen) > 1]
    return TrialPart(found, max(((each[8] - each[0]) / each[4] for each in tenths), default=0.0))


def _trials(
    place: torch.device, asked: _Round, quick: bool, seed: int, watch: Watch, known: TrialSet | None
) -> tuple[TrialSet, dict[str, list[float]]]:
    if asked.threads:
        torch.set_num_threads(asked.threads)
    set_number_formats(Workload(precision=asked.precision), place)
    dtype = torch.bfloat16 if asked.precision == "bfloat16" else torch.float32
    rng = random.Random(seed + (len(known.trials) if known is not None else 0))  # other sizes than those
    share = (QUICK_SHARE if quick else 1.0) * (REFINED_SHARE if known is not None else 1.0)
    plan = [
        kind
        for kind, count in TRIALS.items()
        if (not asked.channels_last or kind in IMAGE_FAMILIES)
        and (asked.precision != "tf32" or kind.startswith(MATRIX_UNITS))
        for _ in range(max(LEAST_OF_A_KIND.get(kind, LEAST_TRIALS), round(share * asked.share(kind) * count)))
    ]
    rng.shuffle(plan)
    stopwatch, limits = Stopwatch(place), LIMITS[place.type]
    if asked.threads == 1:
        limits = replace(limits, smaller=ONE_THREAD_SMALLER)
    if quick:
        limits = replace(limits, flops=limits.flops / QUICK_SIZE_DIVISOR, elements=limits.elements / QUICK_SIZE_DIVISOR)
    timed: list[tuple[str, tuple[int, ...], Timed, tuple[int, int]]] = []
    for number, kind in enumerate(plan):
        sizes = sample_shape(kind, rng, limits)
        with torch.cuda.stream(stopwatch.stream) if stopwatch.stream is not None else nullcontext():
            try:
                calls = calls_of(kind, sizes, place, dtype, channels_last=asked.channels_last)
            except (RuntimeError, NotImplementedError):
                continue  # the device does not support the operation in this precision, or lacks the memory
        for family, call in calls.items():
            try:
                workspaces = 0, 0
                if place.type == "cuda" and family in CONVOLUTIONS:
                    workspaces = measured_workspaces(call, place)
                timed.append((family, sizes, stopwatch.time(call, probe_of(family), call.fresh), workspaces))
            except (RuntimeError, NotImplementedError):
                continue
        del calls
        if place.type == "cuda" and number % 20 == 0:
            torch.cuda.empty_cache()
        watch(number / len(plan))
    medians, called = stopwatch.probe.medians(), _autograd_call(stopwatch)
    on_cpu = place.type == "cpu"
    trials = [
        Trial(
            family, sizes,
            _without_autograd_s(family, time.seconds, called.seconds if on_cpu else 0.0) * usual,
            _without_autograd_s(family, time.host_s, called.host_s),
            workspace_bytes=later_bytes,
            first_workspace_bytes=first_bytes,
            cached_s=_without_autograd_s(family, time.cached_s, called.cached_s) * usual,
        )
        for family, sizes, time, (first_bytes, later_bytes) in timed
        for usual in [medians[probe_of(family)] / time.probe_s]
    ]  # fmt: skip
    made = TrialSet(asked.precision, asked.threads, tuple(trials), memory_format=asked.memory_format, probes_s=medians)
    return made, stopwatch.probe.seen


def _autograd_call(stopwatch: Stopwatch) -> Timed:
    """The time to start an empty backward pass; a network starts one for all of its layers."""
    device = stopwatch.device
    with torch.cuda.stream(stopwatch.stream) if stopwatch.stream is not None else nullcontext():
        x = torch.ones(1, requires_grad=True, device=device)
        output, gradient = x.view(1), torch.ones(1, device=device)
    return stopwatch.time(lambda: torch.autograd.grad(output, [x], gradient, retain_graph=True))


def _without_autograd_s(family: str, took_s: float, called_s: float) -> float:
    through_autograd = family.endswith(("_backward", "_weight"))
    direct = family in ("threshold_backward", "tanh_backward", "gelu_backward")
    return max(0.2 * took_s, took_s - called_s) if through_autograd and not direct else took_s


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
