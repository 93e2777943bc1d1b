"""Extrapolates measurements of a network to another batch size or device.

With measurements at two or more batch sizes, time is linear in the batch size: a cost per batch and a cost per sample.
With one, the cost model gives the factor by which each layer changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import exp, log

from paceline.cluster import Device
from paceline.cost.calibration import Calibration
from paceline.cost.calibrations import calibration_path, load_calibration
from paceline.cost.device_calibration import find_catalogue_device
from paceline.cost.iteration import MIN_LOG_SD, Z_90
from paceline.cost.predicting import predict
from paceline.cost.prediction import LayerPrediction, Prediction
from paceline.errors import InputError
from paceline.measurement.measurement import LayerTime, Measurement
from paceline.workload import Workload

LINE_LOG_SD = 0.04
"""Error of a line through two batch sizes, as a standard deviation of the logarithm, per doubling beyond them."""
FACTOR_LOG_SD = 0.06


def extrapolate(
    measurements: Sequence[Measurement], *, batch: int, device: Device | Calibration | str | None = None
) -> Prediction:
    """`measurements` are of one network, step and device, at one or more batches."""
    if not measurements:
        raise InputError("there is no measurement to extrapolate from")
    if batch < 1:
        raise InputError(f"batch={batch} should be at least 1")
    nearest = min(measurements, key=lambda each: abs(log(each.batch / batch)))
    if any(_identity(each) != _identity(nearest) for each in measurements):
        raise InputError("measurements to extrapolate from should be of one network, one kind of step and one device")
    if device is None and batch == nearest.batch:
        return _as_measured(nearest)
    others = [each for each in measurements if each.batch != nearest.batch]
    if device is None and others:
        second = min(others, key=lambda each: abs(log(each.batch / batch)))
        return _by_line(nearest, second, batch)
    return _by_factor(nearest, batch, device)


def _identity(found: Measurement) -> tuple[str, str, str]:
    return found.name, found.step, found.device_name


def _as_measured(found: Measurement) -> Prediction:
    both = [layer.forward_s.median_s + layer.backward_s.median_s for layer in found.layers]
    layers = tuple(
        LayerPrediction(
            layer.name, layer.kind, layer.forward_s.median_s, layer.backward_s.median_s, layer.update_s.median_s,
            took * 0.95, took * 1.05, 3.0 * layer.flops,
        )
        for layer, took in zip(found.layers, both, strict=True)
    )  # fmt: skip
    return Prediction(
        found.name, found.batch, found.device_name, found.step, found.conditions.get("precision", "float32"),
        int(found.conditions.get("threads", "0")) if found.device == "cpu" else 0,
        found.iteration_s.median_s, found.iteration_s.p10_s, found.iteration_s.p90_s, dict(found.parts_s), layers,
        roofline_s=_roofline_s(found), memory_bytes=found.peak_memory_bytes,
        parameter_bytes=4 * sum(layer.parameters for layer in found.layers), samples=0, basis="measured",
        conditions=dict(found.conditions),
    )  # fmt: skip


def _roofline_s(found: Measurement) -> float:
    return sum(max(3 * x.flops / found.device_flops, 3.0 * x.bytes / found.device_bytes) for x in found.layers)


def _by_line(nearest: Measurement, second: Measurement, batch: int) -> Prediction:
    at, width = float(batch), float(second.batch - nearest.batch)

    def line(here: float, there: float) -> float:
        return max(here + (there - here) * (at - nearest.batch) / width, 0.2 * here * min(1.0, at / nearest.batch))

    start = _as_measured(nearest)
    rows = {layer.name: layer for layer in second.layers}
    layers = tuple(_layer_by_line(layer, rows.get(layer.name), line) for layer in nearest.layers)
    parts = {name: line(took, second.parts_s.get(name, took)) for name, took in nearest.parts_s.items()}
    whole = line(nearest.iteration_s.median_s, second.iteration_s.median_s)
    scale = whole / sum(parts.values())
    beyond = max(0.0, abs(log(batch / nearest.batch, 2)) - 1.0)
    span = exp(Z_90 * max(MIN_LOG_SD, LINE_LOG_SD * (1.0 + beyond)))
    memory = line(nearest.peak_memory_bytes, second.peak_memory_bytes)
    return replace(
        start, batch=batch, iteration_s=whole, low_s=whole / span, high_s=whole * span, layers=layers,
        parts_s={name: took * scale for name, took in parts.items()}, memory_bytes=int(memory),
        roofline_s=start.roofline_s * batch / nearest.batch,
        basis=f"measured at batch {nearest.batch} and {second.batch}",
    )  # fmt: skip


def _layer_by_line(here: LayerTime, there: LayerTime | None, line: Callable[[float, float], float]) -> LayerPrediction:
    other = there or here
    forward = line(here.forward_s.median_s, other.forward_s.median_s)
    backward = line(here.backward_s.median_s, other.backward_s.median_s)
    both = forward + backward
    flops = 3.0 * line(here.flops, other.flops)
    update = here.update_s.median_s
    return LayerPrediction(here.name, here.kind, forward, backward, update, both * 0.85, both * 1.18, flops)


def _by_factor(found: Measurement, batch: int, device: Device | Calibration | str | None) -> Prediction:
    """Scales the measurement by the ratio of the model's predictions for the wanted and the measured case."""
    workload, source = _workload_of(found), _calibrated(found)
    before = predict(workload, source, step=found.step)
    wanted = replace(workload, batch=batch)
    after = predict(wanted, source, step=found.step) if device is None else predict(wanted, device)
    if after.step != found.step and bool(after.threads) == bool(before.threads):
        after = predict(wanted, device, step=found.step)
    measured = {layer.name: layer for layer in found.layers}
    then = {layer.name: layer for layer in before.layers}
    layers = []
    for layer in after.layers:
        known, modelled = measured.get(layer.name), then.get(layer.name)
        if known is None or modelled is None:
            layers.append(layer)
            continue
        forward = _scaled(layer.forward_s, known.forward_s.median_s, modelled.forward_s)
        backward = _scaled(layer.backward_s, known.backward_s.median_s, modelled.backward_s)
        both, old = forward + backward, max(layer.forward_s + layer.backward_s, 1e-12)
        layers.append(
            replace(
                layer, forward_s=forward, backward_s=backward,
                low_s=layer.low_s * both / old, high_s=layer.high_s * both / old,
            )
        )  # fmt: skip
    ratio = found.iteration_s.median_s / before.iteration_s
    span = exp(Z_90 * FACTOR_LOG_SD) if device is None else (after.high_s / after.iteration_s)
    whole = after.iteration_s * ratio
    return replace(
        after, iteration_s=whole, low_s=whole / span, high_s=whole * span, layers=tuple(layers),
        parts_s={name: took * ratio for name, took in after.parts_s.items()},
        basis=f"measured at batch {found.batch} on {found.device_name}; {after.basis}",
    )  # fmt: skip


def _scaled(wanted: float, measured: float, modelled: float) -> float:
    return wanted * measured / modelled if modelled > 0 and measured > 0 else wanted


def _calibrated(found: Measurement) -> Calibration | Device:
    """The calibration or catalogue entry of the measured device."""
    path = calibration_path(found.device_name)
    if path.exists():
        return load_calibration(path)
    device = find_catalogue_device(found.device_name)
    if device is None:
        raise InputError(
            f"the measurement is of {found.device_name}, which has no calibration here: run paceline calibrate there, "
            "or measure at two batch sizes"
        )
    return device


def _workload_of(found: Measurement) -> Workload:
    data = found.conditions.get("data")
    if data is None:
        raise InputError(
            "this measurement was taken in a custom loop, whose data are not known: measure it at two batch sizes, "
            "or give the network as module:function"
        )
    return Workload(
        network=found.name, data=data, batch=found.batch, optimizer=found.conditions.get("optimizer", "sgd"),
        precision=found.conditions.get("precision", "float32"),
        threads=int(found.conditions.get("threads", "0")) if found.device == "cpu" else 0,
    )  # fmt: skip
