"""From samples to a measurement: every sampled iteration is compared with its untouched neighbours.

Neighbours see the same drift of the machine, so the ratio of the two is stable where the seconds are not.
"""

from __future__ import annotations

from bisect import bisect_left
from statistics import median, quantiles

from paceline.errors import PacelineError
from paceline.measurement.averages import interquartile_mean
from paceline.measurement.kernel_order import UNKNOWN
from paceline.measurement.mark_log import PARTS, RECOMPUTE, MarkLog
from paceline.measurement.measurement import IterationTime, LayerSample, LayerTime, Measurement, Spread
from paceline.measurement.rates import DeviceRates
from paceline.measurement.session import Sample, Session
from paceline.measurement.shapes import LayerShape
from paceline.measurement.step_marks import WHOLE
from paceline.trace import Span, Trace

KEEP_IN_RECORD = 2_000


def spread_of(values: list[float]) -> Spread:
    if len(values) < 2:
        value = values[0] if values else 0.0
        return Spread(value, value, value)
    tenths = quantiles(values, n=10, method="inclusive")
    return Spread(median(values), tenths[0], tenths[-1])


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
) -> Measurement:
    """The measurement of a finished session."""
    session.finish()
    untouched = {number: seconds for number, seconds, sampled in session.walls if not sampled}
    if not session.samples:
        raise PacelineError(
            f"no iteration was sampled: {session.number} iterations are too few, "
            f"the first sample comes after {session.first_sample}"
        )
    typical = median(untouched.values()) if untouched else session.samples[0].wall_s
    baseline = _neighbours_s(session, untouched, typical)
    factors = {s.number: baseline[s.number] / _all_s(s) for s in session.samples}
    named = [
        sum(t for (part, _), t in s.spans_s.items() if part != "other") / baseline[s.number] for s in session.samples
    ]
    iteration = spread_of(list(untouched.values()) or [typical])
    parts = _parts_s(session.samples, factors, typical)
    return Measurement(
        name=name,
        batch=batch,
        device=device,
        device_name=device_name,
        step=step,
        iterations=session.number,
        sampled=len(session.samples) * session.stride,
        iteration_s=iteration,
        parts_s=parts,
        accounted=interquartile_mean(named),
        scale=interquartile_mean(factors.values()),
        overhead=session.overhead(_mean(list(untouched.values()) or [typical])),
        layers=_layers(session, factors, typical, baseline, parts["update"]),
        device_flops=rates.flops,
        device_bytes=rates.bytes,
        peak_memory_bytes=peak_memory_bytes,
        conditions=conditions,
        kept=tuple(IterationTime(*wall) for wall in _evenly(session.walls)),
        samples=_layer_samples(session),
        idle_causes_s=_idle_causes_s(session.samples),
        hidden_communication_s=session.hidden_s,
        trace=session.trace or _trace(session.last_log, device),
    )


def _neighbours_s(session: Session, untouched: dict[int, float], typical: float) -> dict[int, float]:
    """For each sample, the median of the untouched iterations before and after it."""
    reach, cold = session.neighbours(typical)
    instrumented = {number for number, _, was in session.walls if was}
    numbers = sorted(n for n in untouched if not any(n - d in instrumented for d in range(1, cold + 1)))
    baseline = {}
    for sample in session.samples:
        place = bisect_left(numbers, sample.number)
        near = [untouched[n] for n in numbers[max(0, place - reach) : place + reach]]
        baseline[sample.number] = median(near) if near else typical
    return baseline


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _parts_s(samples: list[Sample], factors: dict[int, float], typical: float) -> dict[str, float]:
    """Each part's share of a typical iteration in seconds; the shares are normalised to add up to one."""
    shares = {}
    for part in PARTS:
        share = interquartile_mean(
            sum(t for (name, _), t in s.spans_s.items() if name == part) / _all_s(s) for s in samples
        )
        shares[part] = max(0.0, share)
    whole = sum(shares.values())
    return {part: typical * share / whole for part, share in shares.items()}


def _all_s(sample: Sample) -> float:
    """The sum of all spans; positive even if subtracting the cost of marks from a very short iteration leaves
    nothing."""
    return max(1e-9, sum(sample.spans_s.values()))


def _idle_causes_s(samples: list[Sample]) -> dict[str, float]:
    causes = {row for s in samples for part, row in s.spans_s if part == "idle"}
    return {cause: interquartile_mean(s.spans_s.get(("idle", cause), 0.0) for s in samples) for cause in sorted(causes)}


def _layer_names(session: Session) -> list[str]:
    """Rows with any time, in the order of the network; rows that belong to no module come last."""
    seen = {row for s in session.samples for part, row in s.spans_s if part in ("forward", "backward")}
    rows = [name for name in session.shapes.layers if name in seen or session.shapes.layers[name].parameters]
    return rows + sorted(seen - set(rows))


def _kind_without_module(row: str) -> str:
    if RECOMPUTE in row:
        return "recompute"
    return "whole" if row in (WHOLE, UNKNOWN[1]) else "outside"


def _layers(
    session: Session, factors: dict[int, float], typical: float, baseline: dict[int, float], update_s: float
) -> tuple[LayerTime, ...]:
    all_bytes = sum(shape.parameter_bytes for shape in session.shapes.layers.values()) or 1
    layers = []
    for name in _layer_names(session):
        shape = session.shapes.layers.get(name, LayerShape(_kind_without_module(name)))

        def of(part: str, name: str = name) -> Spread:
            """Relative to the baseline first, so that drift of the machine does not widen the spread."""
            return spread_of(
                [
                    typical * s.spans_s.get((part, name), 0.0) * factors[s.number] / baseline[s.number]
                    for s in session.samples
                ]
            )

        forward, backward = of("forward"), of("backward")
        update = update_s * shape.parameter_bytes / all_bytes
        seconds = forward.median_s + backward.median_s
        layers.append(
            LayerTime(
                name=name,
                kind=shape.kind,
                calls=shape.calls,
                forward_s=forward,
                backward_s=backward,
                update_s=Spread(update, update, update),
                update_apportioned=True,
                flops=shape.flops,
                bytes=shape.bytes,
                parameters=shape.parameters,
                activation_bytes=shape.activation_bytes,
                gradient_bytes=shape.parameter_bytes,
                achieved_flops=(shape.flops + shape.backward_flops) / seconds if seconds > 0 else 0.0,
                achieved_bytes=_passes(shape) * shape.bytes / seconds if seconds > 0 else 0.0,
            )
        )
    return tuple(layers)


def _passes(shape: LayerShape) -> float:
    """How often forward and backward go over a layer's bytes, estimated from its arithmetic."""
    return 1.0 + shape.backward_flops / shape.flops if shape.flops else 2.0


def _layer_samples(session: Session) -> tuple[LayerSample, ...]:
    all_bytes = sum(shape.parameter_bytes for shape in session.shapes.layers.values()) or 1
    rows = []
    names = _layer_names(session)
    for s in _evenly(session.samples, max(1, KEEP_IN_RECORD // max(1, len(names)))):
        update = sum(t for (part, _), t in s.spans_s.items() if part == "update")
        for name in names:
            shape = session.shapes.layers.get(name)
            share = shape.parameter_bytes / all_bytes if shape else 0.0
            forward, backward = s.spans_s.get(("forward", name), 0.0), s.spans_s.get(("backward", name), 0.0)
            rows.append(LayerSample(s.number, name, forward, backward, update * share))
    return tuple(rows)


def _evenly(items: list, most: int = KEEP_IN_RECORD) -> list:  # type: ignore[type-arg]
    step = max(1, -(-len(items) // most))
    return items[::step]


def _trace(log: MarkLog | None, device: str) -> Trace:
    if log is None:
        return Trace()
    origin = log.marks[0][3]
    spans = []
    for (_, (part, row), _, start), (_, _, end, _) in zip(log.marks, log.marks[1:], strict=False):
        if end > start:
            note = "recomputed" if RECOMPUTE in row else ""
            spans.append(Span(device, f"{part} {row}".strip(), (start - origin) * 1e-9, (end - origin) * 1e-9, note))
    return Trace(tuple(spans))
