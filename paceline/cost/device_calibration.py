"""Finds the calibration for a device: the user's own, a bundled one, or that of a similar device, scaled."""

from __future__ import annotations

import re
from dataclasses import replace
from math import log, log2

from paceline.cluster import Device, Peak, find_device
from paceline.cost.calibration import Calibration
from paceline.cost.calibrations import bundled_calibrations, local_calibrations
from paceline.cost.device_scaling import COPY_EFFICIENCY, in_precision, peak_efficiency, scaled
from paceline.errors import InputError

SAME_FAMILY_LOG_SD = 0.15
OTHER_FAMILY_LOG_SD = 0.3
OTHER_PRECISION_LOG_SD = 0.2
CORES_LOG_SD = 0.06
"""Error of scaling by data sheets, as a standard deviation of the logarithm: within a device family, across families,
for a precision that was not calibrated, and per doubling of a CPU's cores."""

ResolvedDevice = tuple[Calibration, str, str, float]


def calibration_of_device(device: Device, precision: str = "float32") -> ResolvedDevice:
    """A calibration for the device, its name, the basis of the calibration, and the extra uncertainty."""
    if (own := _own_calibration_of(device)) is not None:
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
    words = re.sub(r"\((R|TM|C)\)|\b(NVIDIA|AMD|Intel|CPU|Processor|\d+-Core|\d+th Gen|Generation)\b|@.*", " ", name)
    try:
        return find_device(" ".join(words.split()))
    except InputError:
        return None


def _own_calibration_of(device: Device) -> Calibration | None:
    """The latest own calibration of the device, by its catalogue name, possibly limited to some of its cores."""
    for found in _own(device.kind):
        sheet = data_sheet_of(found)
        if device.name not in (found.device_name, sheet.name if sheet is not None else ""):
            continue
        cores = device.cores or found.cores
        if device.kind == "gpu" or cores == found.cores:
            return found
        if cores < found.cores:
            return _limited_to_cores(found, cores)
    return None


def _own(kind: str) -> list[Calibration]:
    return [found for found in local_calibrations() if _kind(found) == kind]


def _limited_to_cores(found: Calibration, cores: int) -> Calibration:
    """For a worker that has some of the cores; exchange costs were measured on all of them."""
    key = id(found), cores
    if key not in _parts:
        exchange = tuple(replace(cost, cores=cost.cores or found.cores) for cost in found.exchange)
        _parts[key] = found, replace(found, cores=cores, exchange=exchange)
    return _parts[key][1]


def _nearest(device: Device) -> tuple[Calibration, Device]:
    """The most similar calibrated device: an own one of the same architecture, else a bundled one, else any own one."""
    own = [(found, _measured_sheet(found)) for found in _own(device.kind)]
    bundled = [(found, find_device(name)) for name, found in bundled_calibrations().items()]
    relatives = [each for each in own if device.relative and each[1].relative == device.relative]
    candidates = relatives or [each for each in bundled if each[1].kind == device.kind] or own
    if not candidates:
        raise InputError(
            f"there is no calibrated {device.kind.upper()} to predict {device.name} from: run paceline calibrate"
        )
    return min(candidates, key=lambda each: _distance(each[1], device))


def _kind(calibration: Calibration) -> str:
    return "gpu" if calibration.device == "cuda" else "cpu"


def _measured_sheet(found: Calibration) -> Device:
    """The data sheet of a GPU; a CPU's from measured rates, because a virtual machine rarely has all of its cores."""
    kind, sheet = _kind(found), data_sheet_of(found)
    if sheet is not None and kind == "gpu":
        return sheet
    peak = Peak(float32=found.peak_flops / peak_efficiency(Device(found.device_name, kind), "float32"))
    bandwidth, relative = found.peak_bytes / COPY_EFFICIENCY, sheet.relative if sheet is not None else ""
    return Device(found.device_name, kind, peak, None, bandwidth, found.cores or None, relative=relative)


def _distance(a: Device, b: Device) -> tuple[bool, float]:
    flops, other = a.peak.float32, b.peak.float32
    distance = abs(log(flops / other)) if flops and other else 9.0
    return a.relative != b.relative, distance


_made: dict[tuple[int, Device, Device, str], tuple[Calibration, Calibration]] = {}
_parts: dict[tuple[int, int], tuple[Calibration, Calibration]] = {}


def _cached(calibration: Calibration, source: Device, target: Device, precision: str = "") -> Calibration:
    """Cached with the curves fitted to it, because a plan uses the same devices many times."""
    key = id(calibration), source, target, precision
    if key not in _made:
        make = scaled(calibration, source, target) if not precision else in_precision(calibration, source, precision)
        _made[key] = calibration, make
    return _made[key][1]
