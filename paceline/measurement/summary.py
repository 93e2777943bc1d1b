"""From samples to a measurement, by one statistic: the mean over the sampled iterations.

A sample has the weight of the iterations that it stands for, since sampling is denser at the beginning of a run. Means
add up: layers to their part, and parts to the sampled iteration. What is missing to the mean of the untouched
iterations is the part `unattributed`; nothing is scaled, clamped or spread over layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median
from typing import Any

from paceline.errors import PacelineError
from paceline.measurement.kernel_order import UNKNOWN
from paceline.measurement.mark_log import RECOMPUTE
from paceline.measurement.measurement import IterationTime, LayerSample, LayerTime, Measurement
from paceline.measurement.overhead import HOUR_S
from paceline.measurement.rates import DeviceRates
from paceline.measurement.result_warnings import measurement_warnings, trace_warnings
from paceline.measurement.samples import LAYERED, Sample, mark_factors, without_marks
from paceline.measurement.session import Session
from paceline.measurement.shapes import LayerShape
from paceline.measurement.spread import Spread, spread_of
from paceline.measurement.step_marks import WHOLE
from paceline.trace import PARTS

KEEP_IN_RECORD = 2_000
NAMED_PARTS = tuple(part for part in PARTS if part not in ("validate", "unattributed"))
"""The parts of an iteration; an evaluation inside the loop is not one of them."""


def summarise(
    session: Session,
    rates: DeviceRates,
    *,
    name: str,
    batch: int,
    device: str,
    device_name: str,
    step: str,
    peak_memory_bytes: int,
    conditions: dict[str, str],
    epoch_starts_s: Sequence[float] = (),
) -> Measurement:
    """The measurement of a finished session."""
    session.finish()
    factors = mark_factors(session.samples, session.coarse)
    samples = [without_marks(sample, factors) for sample in session.samples]
    # Marks at layers slow down what comes after them; a part that has no layers is that of the other windows.
    coarse = session.coarse if factors else samples
    if not samples:
        raise PacelineError(
            f"no iteration was sampled: {session.number} iterations are too few, the first {session.warm_up} are "
            f"warm-up and one in {session.every} of the others is sampled"
        )
    walls_s = [seconds for _, seconds, sampled in session.walls if not sampled]
    of_part = {part: samples if part in LAYERED else coarse for part in NAMED_PARTS}
    weights = [sample.weight for sample in samples]
    untouched_s = session.untouched_s(default=fmean((sample.wall_s for sample in samples), weights))
    parts_s = {part: _mean_s(those, part) for part, those in of_part.items()}
    named_s = sum(parts_s.values())
    parts_s["unattributed"] = untouched_s - named_s
    layers = _layers(session, samples, coarse)
    sampled = (len(samples) + len(session.coarse)) * session.stride
    added_s = session.overhead.added_s(untouched_s)
    return Measurement(
        name=name,
        batch=batch,
        device=device,
        device_name=device_name,
        step=step,
        iterations=session.number,
        sampled=sampled,
        iteration_s=spread_of(walls_s or [untouched_s], untouched_s),
        parts_s=parts_s,
        part_medians_s={part: median(sample.part_s(part) for sample in those) for part, those in of_part.items()},
        accounted=named_s / untouched_s,
        overhead=added_s / (max(1, session.number) * untouched_s),
        overhead_hour=session.overhead.added_in_an_hour_s(untouched_s, session.cycle) / HOUR_S,
        overhead_s=added_s,
        layers=layers,
        device_flops=rates.flops,
        device_bytes=rates.bytes,
        peak_memory_bytes=peak_memory_bytes,
        conditions=conditions,
        warnings=(
            *measurement_warnings(
                named_s / untouched_s, sampled, untouched_s, parts_s, layers, conditions.get("busy", "")
            ),
            *trace_warnings(session),
        ),
        kept=tuple(IterationTime(*wall) for wall in _evenly(session.walls)),
        samples=_layer_samples(session, samples),
        idle_causes_s=_idle_causes_s(samples),
        hidden_communication_s=session.hidden_s,
        validation_s=session.validation_ns * 1e-9 / max(1, session.number),
        epoch_start_s=fmean(epoch_starts_s) if epoch_starts_s else 0.0,
        trace=session.trace(device),
    )


def _mean_s(samples: Sequence[Sample], part: str) -> float:
    return fmean((sample.part_s(part) for sample in samples), [sample.weight for sample in samples])


def _idle_causes_s(samples: Sequence[Sample]) -> dict[str, float]:
    causes = {row for sample in samples for part, row in sample.spans_s if part == "idle"}
    weights = [sample.weight for sample in samples]
    return {
        cause: fmean((sample.spans_s.get(("idle", cause), 0.0) for sample in samples), weights)
        for cause in sorted(causes)
    }


def _layer_names(session: Session, samples: Sequence[Sample]) -> list[str]:
    """Rows with any time, in the order of the network; rows that belong to no module come last."""
    seen = {row for s in samples for part, row in s.spans_s if part in ("forward", "backward")}
    rows = [name for name in session.shapes.layers if name in seen or session.shapes.layers[name].parameters]
    return rows + sorted(seen - set(rows))


def _kind_without_module(row: str) -> str:
    if RECOMPUTE in row:
        return "recompute"
    return "whole" if row in (WHOLE, UNKNOWN[1]) else "outside"


def _parameter_bytes(session: Session) -> int:
    return sum(shape.parameter_bytes for shape in session.shapes.layers.values()) or 1


def _layers(session: Session, samples: Sequence[Sample], coarse: Sequence[Sample]) -> tuple[LayerTime, ...]:
    update = spread_of([sample.part_s("update") for sample in coarse], weights=[sample.weight for sample in coarse])
    all_bytes = _parameter_bytes(session)
    return tuple(_layer(session, samples, name, update, all_bytes) for name in _layer_names(session, samples))


def _layer(session: Session, samples: Sequence[Sample], name: str, update: Spread, all_bytes: int) -> LayerTime:
    shape = session.shapes.layers.get(name, LayerShape(_kind_without_module(name)))
    weights = [sample.weight for sample in samples]

    def of(part: str) -> Spread:
        return spread_of([sample.spans_s.get((part, name), 0.0) for sample in samples], weights=weights)

    forward, backward = of("forward"), of("backward")
    share = shape.parameter_bytes / all_bytes
    seconds = forward.mean_s + backward.mean_s
    return LayerTime(
        name=name,
        kind=shape.kind,
        calls=shape.calls,
        forward_s=forward,
        backward_s=backward,
        update_s=update.times(share),
        update_apportioned=True,
        flops=shape.flops,
        bytes=shape.bytes,
        parameters=shape.parameters,
        activation_bytes=shape.activation_bytes,
        gradient_bytes=shape.parameter_bytes,
        achieved_flops=(shape.flops + shape.backward_flops) / seconds if seconds > 0 else 0.0,
        achieved_bytes=_passes(shape) * shape.bytes / seconds if seconds > 0 else 0.0,
    )


def _passes(shape: LayerShape) -> float:
    """How often forward and backward go over a layer's bytes, estimated from its arithmetic."""
    return 1.0 + shape.backward_flops / shape.flops if shape.flops else 2.0


def _layer_samples(session: Session, samples: Sequence[Sample]) -> tuple[LayerSample, ...]:
    all_bytes = _parameter_bytes(session)
    rows = []
    names = _layer_names(session, samples)
    for sample in _evenly(samples, max(1, KEEP_IN_RECORD // max(1, len(names)))):
        update_s = sample.part_s("update")
        for name in names:
            shape = session.shapes.layers.get(name)
            share = shape.parameter_bytes / all_bytes if shape else 0.0
            forward_s, backward_s = (sample.spans_s.get((part, name), 0.0) for part in ("forward", "backward"))
            rows.append(LayerSample(sample.number, name, forward_s, backward_s, update_s * share))
    return tuple(rows)


def _evenly(items: Sequence[Any], most: int = KEEP_IN_RECORD) -> Sequence[Any]:
    step = max(1, -(-len(items) // most))
    return items[::step]
