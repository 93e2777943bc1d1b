"""Scales a calibration to another device, or to a precision that was not calibrated, by data sheets.

Each trial is split into its time at the peak rates of its family and the rest, which comes from being too small or too
irregular to keep the device busy. The first part scales with the rates in the data sheets. The rest scales with the
square root of that: half-way between fixed costs, which are equal on all devices, and inefficiency, which scales fully.
On a CPU the fixed cost of a call is known apart: it depends on the speed of a core, not on the number of threads.
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
from paceline.cost.calibrations import bundled_calibrations, calibration_path, load_calibration, local_calibrations
from paceline.cost.curve import Roofline, Trial
from paceline.cost.families import FAMILIES, MATRIX_UNITS
from paceline.errors import InputError

SAME_FAMILY_LOG_SD = 0.15
OTHER_FAMILY_LOG_SD = 0.3
OTHER_PRECISION_LOG_SD = 0.2
CORES_LOG_SD = 0.06
"""Error of scaling by data sheets, as a standard deviation of the logarithm: within a device family, across families,
for a precision that was not calibrated, and per doubling of a CPU's cores."""
PEAK_QUANTILE = 0.9
"""Quantile of a family's trials taken as its peak rate."""
COPY_EFFICIENCY = 0.85
"""Share of a data sheet's bandwidth that a large copy reaches."""

CORE_BANDWIDTH = 25e9
"""Bytes/s of memory that one core of a CPU reaches: 13 GB/s on servers of Intel, 40 GB/s on desktops and on Zen 4."""

ResolvedDevice = tuple[Calibration, str, str, float]


def calibration_of_device(device: Device, precision: str = "float32") -> ResolvedDevice:
    """A calibration for the device, its name, the basis of the calibration, and the extra uncertainty."""
    if (own := _local_calibration_of(device)) is not None:
        return with_precision((own, device.name, "calibrated here", 0.0), device, precision)
    known = bundled_calibrations()
    if device.name in known:
        return with_precision((known[device.name], device.name, "calibrated elsewhere", 0.0), device, precision)
    found, source = _nearest(device)
    made = _cached(found, source, device)
    extra_log_sd = SAME_FAMILY_LOG_SD if source.relative and source.relative == device.relative else OTHER_FAMILY_LOG_SD
    if device.kind == "cpu":
        extra_log_sd += CORES_LOG_SD * abs(log2((device.cores or 1) / (source.cores or 1)))
    basis = f"from its data sheet and {source.name}, the most similar calibrated device"
    return with_precision((made, device.name, basis, extra_log_sd), device, precision)


def with_precision(known: ResolvedDevice, sheet: Device | None, precision: str) -> ResolvedDevice:
    """A calibration with trials in `precision`, scaled from float32 by the data sheet if there are none."""
    calibration, name, basis, extra_log_sd = known
    have = {trials.precision for trials in calibration.sets}
    if precision in have or (precision == "float16" and "bfloat16" in have):  # both types have the same speed
        return known
    if precision == "tf32" and calibration.device == "cpu":
        raise InputError("precision 'tf32' needs a GPU; predict float32 on the CPU")
    if precision not in ("tf32", "bfloat16", "float16"):
        raise InputError(
            f"precision {precision!r} cannot be predicted: calibrations are of float32, tf32, bfloat16 or float16"
        )
    if sheet is None or not sheet.peak_of(precision) or not sheet.peak_of("float32"):
        raise InputError(
            f"{name} was not calibrated for {precision}, and no data sheet gives its peak: "
            f"run `paceline.calibrate(precision={precision!r})` on it, or predict float32"
        )
    made = _cached(calibration, sheet, sheet, precision)
    return made, name, f"{basis}; {precision} from float32 by its data sheet", extra_log_sd + OTHER_PRECISION_LOG_SD


def data_sheet_of(calibration: Calibration) -> Device | None:
    """The catalogue entry of the calibrated device, if its name is recognised."""
    return find_catalogue_device(calibration.conditions.get("catalogue name", calibration.device_name))


def find_catalogue_device(name: str) -> Device | None:
    """Finds a device by its system name, such as `NVIDIA H200` or `AMD EPYC 7763 64-Core Processor`."""
    words = re.sub(r"\((R|TM|C)\)|\b(NVIDIA|AMD|Intel|CPU|Processor|\d+-Core)\b|@.*", " ", name)
    try:
        return find_device(" ".join(words.split()))
    except InputError:
        return None


def _local_calibration_of(device: Device) -> Calibration | None:
    """The calibration made on this machine for a device of the same name, possibly limited to some of its cores."""
    path = calibration_path(device.name)
    if not path.exists():
        return None
    found = load_calibration(path)
    cores = device.cores or found.cores
    if _kind(found) != device.kind or (device.kind == "cpu" and cores > found.cores):
        return None
    return found if device.kind == "gpu" or cores == found.cores else _limited_to_cores(found, cores)


def _limited_to_cores(found: Calibration, cores: int) -> Calibration:
    """For a worker that has some of the cores; exchange costs were measured on all of them."""
    key = id(found), cores
    if key not in _parts:
        exchange = tuple(replace(cost, cores=cost.cores or found.cores) for cost in found.exchange)
        _parts[key] = found, replace(found, cores=cores, exchange=exchange)
    return _parts[key][1]


def _nearest(device: Device) -> tuple[Calibration, Device]:
    """The most similar calibrated device: one bundled with Paceline, else one calibrated on this machine."""
    candidates = [(found, find_device(name)) for name, found in bundled_calibrations().items()]
    candidates = [each for each in candidates if each[1].kind == device.kind]
    if not candidates:
        candidates = [(found, _as_measured(found)) for found in local_calibrations() if _kind(found) == device.kind]
    if not candidates:
        raise InputError(
            f"no {device.kind.upper()} is calibrated that {device.name} can be predicted from: run paceline calibrate"
        )
    return min(candidates, key=lambda each: _distance(each[1], device))


def _kind(calibration: Calibration) -> str:
    return "gpu" if calibration.device == "cuda" else "cpu"


def _as_measured(found: Calibration) -> Device:
    """A data sheet from measured rates, because a virtual machine rarely has all cores of its CPU."""
    kind = _kind(found)
    peak = Peak(float32=found.peak_flops / _peak_efficiency(Device(found.device_name, kind), "float32"))
    return Device(found.device_name, kind, peak, None, found.peak_bytes / COPY_EFFICIENCY, found.cores or None)


def _distance(a: Device, b: Device) -> tuple[bool, float]:
    flops, other = a.peak.float32, b.peak.float32
    distance = abs(log(flops / other)) if flops and other else 9.0
    return a.relative != b.relative, distance


def _peak_efficiency(device: Device, precision: str) -> float:
    """Share of a data sheet's peak that a large matrix product reaches."""
    if precision != "float32" or device.kind == "cpu":
        return 0.8
    if device.relative == "kepler":
        return 0.6
    # Since 2020 most GPUs have twice the FP32 lanes per multiprocessor, but cannot keep all of them busy.
    flops, cores = device.peak.float32 or 0.0, device.cores or 1
    return 0.73 if (device.year or 0) >= 2020 and flops / cores > 0.3e12 else 0.93


def _rate(device: Device, precision: str) -> float | None:
    peak = device.peak_of(precision)
    return peak * _peak_efficiency(device, precision) if peak else None


_made: dict[tuple[int, Device, Device, str], tuple[Calibration, Calibration]] = {}
_parts: dict[tuple[int, int], tuple[Calibration, Calibration]] = {}


def _cached(calibration: Calibration, source: Device, target: Device, precision: str = "") -> Calibration:
    """Cached with the curves fitted to it, because a plan uses the same devices many times."""
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
    """Slowdown of matrix products, other arithmetic, and memory."""

    products: float
    arithmetic: float
    memory: float
    source_rate: float
    """The source's rate of products divided by its rate in float32."""
    one_core: float = 0.0
    """Slowdown of one core of a CPU, which makes the calls however many cores compute."""

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
        cores = target.cores or 1
        for threads in sorted({*(1 << power for power in range(cores.bit_length())), cores}):
            each = (min if threads == 1 else max)(own, key=lambda trials: trials.threads)
            # With few threads the speed of their cores counts, also for memory.
            share = each.threads / (source.cores or 1) / (threads / cores)
            here, there = _reached(source, each.threads), _reached(target, threads)
            slower = replace(
                ratio, products=ratio.products * share, arithmetic=ratio.arithmetic * share,
                memory=here / there if here and there else ratio.arithmetic * share,
                one_core=ratio.arithmetic * cores / (source.cores or 1),
            )  # fmt: skip
            yield replace(each, threads=threads, trials=tuple(_moved(each, calibration, slower)))


def _reached(cpu: Device, threads: int) -> float:
    """Memory bandwidth that so many threads of a CPU reach together; 0 if unknown."""
    whole = cpu.memory_bandwidth or 0.0
    return whole if threads >= (cpu.cores or 1) else min(whole, threads * CORE_BANDWIDTH)


def _moved(trials: TrialSet, calibration: Calibration, ratio: _Ratio) -> Iterator[Trial]:
    """The scaled trials. Fitted kernel parameters describe the shape of a curve, which does not change."""
    families: dict[str, list[Trial]] = defaultdict(list)
    for trial in trials.trials:
        families[trial.family].append(trial)
    size_bytes = 2.0 if trials.precision in ("bfloat16", "float16") else 4.0
    for family, own in families.items():
        products = family.startswith(MATRIX_UNITS)
        slower = ratio.products if products else ratio.arithmetic
        rate = calibration.peak_flops * (ratio.source_rate if products else 1.0)
        work = np.array([FAMILIES[family].work_of(trial.sizes) for trial in own])
        seconds = np.array([trial.seconds for trial in own])
        by_flops, by_bytes = work[:, 0] / rate, size_bytes * work[:, 1] / calibration.peak_bytes
        ideal = np.maximum(np.maximum(by_flops, by_bytes), 1e-12)
        factor = np.maximum(by_flops * slower, by_bytes * ratio.memory) / ideal
        at_best = np.minimum(seconds, ideal / np.quantile(ideal / seconds, PEAK_QUANTILE))
        called = np.minimum(seconds - at_best, Roofline(work, seconds).costs[0]) if ratio.one_core else 0.0
        moved = at_best * factor + (seconds - at_best - called) * np.sqrt(factor) + called * np.sqrt(ratio.one_core)
        yield from (replace(trial, seconds=float(s)) for trial, s in zip(own, moved, strict=True))
