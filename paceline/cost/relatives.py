"""A device that is not here, or a precision that was not tried: data sheets, and the nearest that was calibrated.

Every trial is taken apart: what its arithmetic and its bytes take at the best rates of its family, and what is left,
from being too small or too odd to keep the device busy. The first goes by the data sheets; the rest by the square
root of that, half-way between fixed costs, which all devices have alike, and waste, which grows with everything.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import log, log2

import numpy as np

from paceline.cluster import Device, Peak, find_device
from paceline.cost.calibration import Calibration, TrialSet
from paceline.cost.calibrations import bundled, kept_here, load_calibration, place_of
from paceline.cost.curve import Trial
from paceline.cost.families import FAMILIES
from paceline.errors import InputError

SAME_FAMILY = 0.15
OTHER_FAMILY = 0.3
OTHER_PRECISION = 0.2
MORE_CORES = 0.06
"""How far data sheets mislead, as a standard deviation of the logarithm: little among relatives, more beyond, for a
precision that was not tried, and for each doubling of a CPU's cores."""
BEST = 0.9
"""The share of a family's trials that reach less than its best rates."""
COPIED = 0.85
"""What a large copy reaches of a data sheet's bandwidth."""
MATRIX_UNITS = ("matmul", "convolution", "attention", "recurrent")

Known = tuple[Calibration, str, str, float]


def calibration_for(device: Device, precision: str = "float32") -> Known:
    """A calibration as the device would have it, its name, what that is based on, and how much less sure it is."""
    if (own := _made_here(device)) is not None:
        return in_precision((own, device.name, "calibrated here", 0.0), device, precision)
    known = bundled()
    if device.name in known:
        return in_precision((known[device.name], device.name, "calibrated elsewhere", 0.0), device, precision)
    found, source = _nearest(device)
    made = _once(found, source, device)
    wider = SAME_FAMILY if source.relative and source.relative == device.relative else OTHER_FAMILY
    if device.kind == "cpu":
        wider += MORE_CORES * abs(log2((device.cores or 1) / (source.cores or 1)))
    basis = f"from its data sheet and {source.name}, its nearest calibrated relative"
    return in_precision((made, device.name, basis, wider), device, precision)


def in_precision(known: Known, sheet: Device | None, precision: str) -> Known:
    """With trials of `precision`; where none were made, those of float32 as they would be by the data sheet."""
    calibration, name, basis, wider = known
    if any(trials.precision == precision for trials in calibration.sets):
        return known
    if precision == "tf32" and calibration.device == "cpu":
        raise InputError("precision 'tf32' needs a GPU; predict float32 on the CPU")
    if precision not in ("tf32", "bfloat16"):
        raise InputError(f"precision {precision!r} cannot be predicted: calibrations are of float32, tf32 or bfloat16")
    if sheet is None or not sheet.peak_of(precision) or not sheet.peak_of("float32"):
        raise InputError(
            f"{name} was not calibrated for {precision}, and no data sheet gives its peak: "
            f"run paceline calibrate --precision {precision} on it, or predict float32"
        )
    made = _once(calibration, sheet, sheet, precision)
    return made, name, f"{basis}; {precision} from float32 by its data sheet", wider + OTHER_PRECISION


def sheet_of(calibration: Calibration) -> Device | None:
    """The catalogue's entry for the device that was calibrated, if its name can be told."""
    return catalogue_entry(calibration.conditions.get("catalogue name", calibration.device_name))


def catalogue_entry(name: str) -> Device | None:
    """For a name as systems give it, such as `NVIDIA H200` or `AMD EPYC 7763 64-Core Processor`."""
    words = re.sub(r"\((R|TM|C)\)|\b(NVIDIA|AMD|Intel|CPU|Processor|\d+-Core)\b|@.*", " ", name)
    try:
        return find_device(" ".join(words.split()))
    except InputError:
        return None


def _made_here(device: Device) -> Calibration | None:
    """The calibration of this machine for a device that is called as the system calls it, or for some of its cores."""
    path = place_of(device.name)
    if not path.exists():
        return None
    found = load_calibration(path)
    cores = device.cores or found.cores
    if _kind(found) != device.kind or (device.kind == "cpu" and cores > found.cores):
        return None
    return found if device.kind == "gpu" or cores == found.cores else _with_cores(found, cores)


def _with_cores(found: Calibration, cores: int) -> Calibration:
    """A worker that has some of the cores; exchanging was measured on all of them."""
    key = id(found), cores
    if key not in _parts:
        exchange = tuple(replace(cost, cores=cost.cores or found.cores) for cost in found.exchange)
        _parts[key] = found, replace(found, cores=cores, exchange=exchange)
    return _parts[key][1]


def _nearest(device: Device) -> tuple[Calibration, Device]:
    """What was calibrated and is most like it: of those that come with Paceline, else of those made here."""
    candidates = [(found, find_device(name)) for name, found in bundled().items()]
    candidates = [each for each in candidates if each[1].kind == device.kind]
    if not candidates:
        candidates = [(found, _as_measured(found)) for found in kept_here() if _kind(found) == device.kind]
    if not candidates:
        raise InputError(
            f"no {device.kind.upper()} was calibrated that {device.name} could be compared with: run paceline calibrate"
        )
    return min(candidates, key=lambda each: _distance(each[1], device))


def _kind(calibration: Calibration) -> str:
    return "gpu" if calibration.device == "cuda" else "cpu"


def _as_measured(found: Calibration) -> Device:
    """A data sheet from what was measured: a CPU has rarely all the cores that its own describes."""
    kind = _kind(found)
    peak = Peak(float32=found.peak_flops / _reached(Device(found.device_name, kind), "float32"))
    return Device(found.device_name, kind, peak, None, found.peak_bytes / COPIED, found.cores or None)


def _distance(a: Device, b: Device) -> tuple[bool, float]:
    flops, other = a.peak.float32, b.peak.float32
    apart = abs(log(flops / other)) if flops and other else 9.0
    return a.relative != b.relative, apart


def _reached(device: Device, precision: str) -> float:
    """The share of a data sheet's peak that a large product reaches."""
    if precision != "float32" or device.kind == "cpu":
        return 0.8
    if device.relative == "kepler":
        return 0.6
    # Since 2020 most GPUs have twice the lanes in a multiprocessor, and not the means to feed them all.
    flops, cores = device.peak.float32 or 0.0, device.cores or 1
    return 0.73 if (device.year or 0) >= 2020 and flops / cores > 0.3e12 else 0.93


def _rate(device: Device, precision: str) -> float | None:
    peak = device.peak_of(precision)
    return peak * _reached(device, precision) if peak else None


_made: dict[tuple[int, Device, Device, str], tuple[Calibration, Calibration]] = {}
_parts: dict[tuple[int, int], tuple[Calibration, Calibration]] = {}


def _once(calibration: Calibration, source: Device, target: Device, precision: str = "") -> Calibration:
    """Kept, because curves are fitted to what is made: a plan asks for the same devices many times."""
    key = id(calibration), source, target, precision
    if key not in _made:
        make = _scaled(calibration, source, target) if not precision else _derived(calibration, source, precision)
        _made[key] = calibration, make
    return _made[key][1]


def _scaled(calibration: Calibration, source: Device, target: Device) -> Calibration:
    sets = tuple(_sets(calibration, source, target))
    if not sets:
        raise InputError(f"the data sheet of {target.name} gives no peak that {source.name} was calibrated for")
    ratio = _Ratio.of(source, target, "float32") or _Ratio.of(source, target, sets[0].precision)
    assert ratio is not None
    return replace(
        calibration, device_name=target.name, sets=sets,
        peak_flops=calibration.peak_flops / ratio.arithmetic, peak_bytes=calibration.peak_bytes / ratio.memory,
        memory_bytes=target.memory_bytes or calibration.memory_bytes, cores=target.cores or calibration.cores,
        exchange=(), conditions={**calibration.conditions, "catalogue name": target.name},
    )  # fmt: skip


def _derived(calibration: Calibration, sheet: Device, precision: str) -> Calibration:
    ratio = _Ratio.of(sheet, sheet, "float32", precision)
    assert ratio is not None
    if precision == "bfloat16":
        ratio = replace(ratio, memory=0.5)
    made = [
        replace(trials, precision=precision, trials=tuple(_moved(trials, calibration, ratio)))
        for trials in calibration.sets
        if trials.precision == "float32"
    ]
    return replace(calibration, sets=(*calibration.sets, *made))


@dataclass(frozen=True)
class _Ratio:
    """How many times as long: products of matrices, other arithmetic, memory."""

    products: float
    arithmetic: float
    memory: float
    source_rate: float
    """Of the source's products, over its rate in float32."""

    @staticmethod
    def of(source: Device, target: Device, precision: str, wanted: str = "") -> _Ratio | None:
        here, there = _rate(source, precision), _rate(target, wanted or precision)
        if not here or not there:
            return None
        single, other = _rate(source, "float32") or here, _rate(target, "float32") or there
        known = source.memory_bandwidth and target.memory_bandwidth
        memory = (source.memory_bandwidth or 1.0) / (target.memory_bandwidth or 1.0) if known else single / other
        return _Ratio(here / there, single / other, memory, here / single)


def _sets(calibration: Calibration, source: Device, target: Device) -> Iterator[TrialSet]:
    for precision in dict.fromkeys(trials.precision for trials in calibration.sets):
        own = [trials for trials in calibration.sets if trials.precision == precision]
        ratio = _Ratio.of(source, target, precision)
        if ratio is None:
            continue
        if target.kind == "gpu":
            yield from (replace(each, trials=tuple(_moved(each, calibration, ratio))) for each in own)
            continue
        for threads in sorted({1, target.cores or 1}):
            each = (min if threads == 1 else max)(own, key=lambda trials: trials.threads)
            # By one of its threads, a core's own speed counts, for memory too.
            share = each.threads / (source.cores or 1) / (threads / (target.cores or 1))
            slower = ratio if share == 1 else replace(
                ratio, products=ratio.products * share, arithmetic=ratio.arithmetic * share,
                memory=ratio.arithmetic * share,
            )  # fmt: skip
            yield replace(each, threads=threads, trials=tuple(_moved(each, calibration, slower)))


def _moved(trials: TrialSet, calibration: Calibration, ratio: _Ratio) -> Iterator[Trial]:
    """The trials as they would be. The fit's numbers are of the shape of a curve, which stays."""
    families: dict[str, list[Trial]] = defaultdict(list)
    for trial in trials.trials:
        families[trial.family].append(trial)
    size_bytes = 2.0 if trials.precision == "bfloat16" else 4.0
    for family, own in families.items():
        products = family.startswith(MATRIX_UNITS)
        slower = ratio.products if products else ratio.arithmetic
        rate = calibration.peak_flops * (ratio.source_rate if products else 1.0)
        work = np.array([FAMILIES[family].work_of(trial.sizes) for trial in own])
        seconds = np.array([trial.seconds for trial in own])
        by_flops, by_bytes = work[:, 0] / rate, size_bytes * work[:, 1] / calibration.peak_bytes
        ideal = np.maximum(np.maximum(by_flops, by_bytes), 1e-12)
        factor = np.maximum(by_flops * slower, by_bytes * ratio.memory) / ideal
        at_best = np.minimum(seconds, ideal / np.quantile(ideal / seconds, BEST))
        moved = at_best * factor + (seconds - at_best) * np.sqrt(factor)
        yield from (replace(trial, seconds=float(s)) for trial, s in zip(own, moved, strict=True))
