"""Scales a calibration to another device, or to a precision that was not calibrated, by data sheets.

Each trial is split into its time at the peak rates of its family and the rest, which comes from being too small or too
irregular to keep the device busy. The first part scales with the rates in the data sheets. The rest scales with the
square root of that: half-way between fixed costs, which are equal on all devices, and inefficiency, which scales fully.
On a CPU the fixed cost of a call is known apart: it depends on the speed of a core, not on the number of threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from paceline.cluster import Device
from paceline.cost.calibration import Calibration, TrialSet
from paceline.cost.curve import Roofline, Trial
from paceline.cost.families import FAMILIES, MATRIX_UNITS
from paceline.errors import InputError

PEAK_QUANTILE = 0.9
"""Quantile of a family's trials taken as its peak rate."""
COPY_EFFICIENCY = 0.85
"""Share of a data sheet's bandwidth that a large copy reaches."""

CORE_BANDWIDTH = 25e9
"""Bytes/s of memory that one core of a CPU reaches: 13 GB/s on servers of Intel, 40 GB/s on desktops and on Zen 4."""


def peak_efficiency(device: Device, precision: str) -> float:
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
    return peak * peak_efficiency(device, precision) if peak else None


def scaled(calibration: Calibration, source: Device, target: Device) -> Calibration:
    sets = tuple(_sets(calibration, source, target))
    if not sets:
        raise InputError(f"the data sheet of {target.name} gives no peak that {source.name} was calibrated for")
    ratio = _Ratio.of(source, target, "float32") or _Ratio.of(source, target, sets[0].precision)
    assert ratio is not None
    return replace(
        calibration, device_name=target.name, sets=sets,
        peak_flops=calibration.peak_flops / ratio.arithmetic, peak_bytes=calibration.peak_bytes / ratio.memory,
        memory_bytes=target.memory_bytes or calibration.memory_bytes, cores=target.cores or calibration.cores,
        exchange=(), references=(), own=None, conditions={**calibration.conditions, "catalogue name": target.name},
    )  # fmt: skip


def in_precision(calibration: Calibration, sheet: Device, precision: str) -> Calibration:
    ratio = _Ratio.of(sheet, sheet, "float32", precision)
    assert ratio is not None
    if precision == "bfloat16":
        ratio = replace(ratio, memory=0.5)
    made = [
        replace(_moved(trials, calibration, ratio), precision=precision)
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
    for precision, layout in dict.fromkeys((trials.precision, trials.memory_format) for trials in calibration.sets):
        own = [t for t in calibration.sets if (t.precision, t.memory_format) == (precision, layout)]
        ratio = _Ratio.of(source, target, precision)
        if ratio is None:
            continue
        if target.kind == "gpu":
            yield from (_moved(each, calibration, ratio) for each in own)
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
            yield replace(_moved(each, calibration, slower), threads=threads)


def _reached(cpu: Device, threads: int) -> float:
    """The memory bandwidth that `threads` threads of a CPU reach together; 0 if unknown."""
    whole = cpu.memory_bandwidth or 0.0
    return whole if threads >= (cpu.cores or 1) else min(whole, threads * CORE_BANDWIDTH)


def _moved(trials: TrialSet, calibration: Calibration, ratio: _Ratio) -> TrialSet:
    """The scaled trials. Fitted kernel parameters describe the shape of a curve, which does not change."""
    scaled: list[Trial] = []
    size_bytes = 2.0 if trials.precision in ("bfloat16", "float16") else 4.0
    for family, own in trials.by_family.items():
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
        scaled += (
            replace(trial, seconds=float(s), cached_s=trial.cached_s * float(s) / trial.seconds)
            for trial, s in zip(own, moved, strict=True)
        )
    return replace(trials, trials=tuple(scaled), from_networks=())
