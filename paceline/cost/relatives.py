"""A device that is not here: its data sheet, and the nearest relative that was calibrated."""

from __future__ import annotations

from dataclasses import replace
from math import log

from paceline.cluster import Device, find_device
from paceline.cost.calibration import Calibration, TrialSet
from paceline.cost.calibrations import bundled
from paceline.cost.curve import Trial
from paceline.cost.families import FAMILIES
from paceline.errors import InputError

SAME_FAMILY = 0.15
OTHER_FAMILY = 0.3
"""How far data sheets mislead, as a standard deviation of the logarithm: little among relatives, more beyond."""


def calibration_for(device: Device) -> tuple[Calibration, str, str, float]:
    """A calibration as the device would have it, its name, what that is based on, and how much less sure it is."""
    known = bundled()
    if device.name in known:
        return known[device.name], device.name, "calibrated elsewhere", 0.0
    candidates = [(find_device(name), found) for name, found in known.items() if find_device(name).kind == device.kind]
    if not candidates:
        raise InputError(f"no {device.kind} was calibrated that {device.name} could be compared with")
    relative, found = min(candidates, key=lambda each: _distance(each[0], device))
    wider = SAME_FAMILY if relative.relative == device.relative else OTHER_FAMILY
    basis = f"from its data sheet and {relative.name}, its nearest calibrated relative"
    return _scaled(found, relative, device), device.name, basis, wider


def _distance(a: Device, b: Device) -> tuple[bool, float]:
    flops, other = a.peak.float32, b.peak.float32
    apart = abs(log(flops / other)) if flops and other else 9.0
    return a.relative != b.relative, apart


def _scaled(calibration: Calibration, source: Device, target: Device) -> Calibration:
    """Every trial as it would be: arithmetic by the ratio of peaks, memory by that of bandwidths, fixed costs kept."""
    sets = []
    for trials in calibration.sets:
        here, there = source.peak_of(trials.precision), target.peak_of(trials.precision)
        if not here or not there:
            continue
        arithmetic = here / there
        memory = _ratio(source.memory_bandwidth, target.memory_bandwidth) or arithmetic
        least = _fixed(trials)
        moved = [_moved(trial, calibration, arithmetic, memory, least[trial.family]) for trial in trials.trials]
        # The fit's numbers are of the shape of a curve, which stays.
        sets.append(TrialSet(trials.precision, trials.threads, tuple(moved), trials.shapes))
    if not sets:
        raise InputError(f"the data sheet of {target.name} gives no peak that {source.name} was calibrated for")
    first = sets[0].precision
    ratio = _ratio(source.peak_of(first), target.peak_of(first)) or 1.0
    memory = _ratio(source.memory_bandwidth, target.memory_bandwidth) or ratio
    return replace(
        calibration, device_name=target.name, sets=tuple(sets),
        peak_flops=calibration.peak_flops / ratio,
        peak_bytes=calibration.peak_bytes / memory,
        memory_bytes=target.memory_bytes or calibration.memory_bytes, cores=target.cores or calibration.cores,
    )  # fmt: skip


def _ratio(here: float | None, there: float | None) -> float | None:
    return here / there if here and there else None


def _fixed(trials: TrialSet) -> dict[str, float]:
    least: dict[str, float] = {}
    for trial in trials.trials:
        least[trial.family] = min(least.get(trial.family, trial.seconds), trial.seconds)
    return least


def _moved(trial: Trial, calibration: Calibration, arithmetic: float, memory: float, fixed_s: float) -> Trial:
    flops, elements = FAMILIES[trial.family].work_of(trial.sizes)
    by_flops, by_bytes = flops / calibration.peak_flops, 4.0 * elements / calibration.peak_bytes
    share = by_flops / (by_flops + by_bytes) if by_flops + by_bytes else 0.0
    ratio = arithmetic**share * memory ** (1.0 - share)
    return replace(trial, seconds=fixed_s + (trial.seconds - fixed_s) * ratio)
