"""From samples to a measurement: every sampled iteration is compared with its untouched neighbours.

Neighbours share the machine's mood, so the ratio of the two is steady where the seconds are not.
"""

from __future__ import annotations

from bisect import bisect_left
from statistics import median, quantiles

from paceline.errors import PacelineError
from paceline.measurement.averages import middle
from paceline.measurement.kernel_order import UNKNOWN
from paceline.measurement.measurement import IterationTime, LayerSample, LayerTime, Measurement, Spread
from paceline.measurement.rates import DeviceRates
from paceline.measurement.session import Sample, Session
from paceline.measurement.shapes import LayerShape
from paceline.measurement.step_marks import WHOLE
from paceline.measurement.tape import PARTS, RECOMPUTE, Tape
from paceline.trace import Span, Trace

KEEP_IN_RECORD = 2_000


def spread(values: list[float]) -> Spread:
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
            f"no iteration was sampled: {session.number} are too few, "
            f"the first sample comes after {session.first_sample}"
        )
    typical = median(untouched.values()) if untouched else session.samples[0].wall_s
    beside = _neighbours_s(session, untouched, typical)
    factors = {s.number: beside[s.number] / _all_s(s) for s in session.samples}
    named = [sum(t for (part, _), t in s.owners.items() if part != "other") / beside[s.number] for s in session.samples]
    iteration = spread(list(untouched.values()) or [typical])
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
        accounted=middle(named),
        scale=middle(factors.values()),
        overhead=session.overhead(_mean(list(untouched.values()) or [typical])),
        layers=_layers(session, factors, typical, beside, parts["update"]),
        device_flops=rates.flops,
        device_bytes=rates.bytes,
        peak_memory_bytes=peak_memory_bytes,
        conditions=conditions,
        kept=tuple(IterationTime(*wall) for wall in _evenly(session.walls)),
        samples=_layer_samples(session),
        idle_causes_s=_idle_causes_s(session.samples),
        hidden_communication_s=session.hidden_s,
        trace=session.trace or _trace(session.last_tape, device),
    )


def _neighbours_s(session: Session, untouched: dict[int, float], typical: float) -> dict[int, float]:
    """For each sample, the median of the untouched iterations before and after it."""
    reach, cold = session.neighbours(typical)
    touched = {number for number, _, was in session.walls if was}
    numbers = sorted(n for n in untouched if not any(n - d in touched for d in range(1, cold + 1)))
    beside = {}
    for sample in session.samples:
        place = bisect_left(numbers, sample.number)
        near = [untouched[n] for n in numbers[max(0, place - reach) : place + reach]]
        beside[sample.number] = median(near) if near else typical
    return beside


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _parts_s(samples: list[Sample], factors: dict[int, float], typical: float) -> dict[str, float]:
    """Each part's share of an iteration, times the typical one; the shares are made to add up to one."""
    shares = {}
    for part in PARTS:
        share = middle(sum(t for (owner, _), t in s.owners.items() if owner == part) / _all_s(s) for s in samples)
        shares[part] = max(0.0, share)
    whole = sum(shares.values())
    return {part: typical * share / whole for part, share in shares.items()}


def _all_s(sample: Sample) -> float:
    """What the owners have together; marks taken off an iteration of next to nothing could leave less than it."""
    return max(1e-9, sum(sample.owners.values()))


def _idle_causes_s(samples: list[Sample]) -> dict[str, float]:
    causes = {row for s in samples for part, row in s.owners if part == "idle"}
    return {cause: middle(s.owners.get(("idle", cause), 0.0) for s in samples) for cause in sorted(causes)}


def _layer_names(session: Session) -> list[str]:
    """Rows with any time, in the order of the network, what belongs to no module last."""
    seen = {row for s in session.samples for part, row in s.owners if part in ("forward", "backward")}
    rows = [name for name in session.shapes.layers if name in seen or session.shapes.layers[name].parameters]
    return rows + sorted(seen - set(rows))


def _kind_without_module(row: str) -> str:
    if RECOMPUTE in row:
        return "recompute"
    return "whole" if row in (WHOLE, UNKNOWN[1]) else "outside"


def _layers(
    session: Session, factors: dict[int, float], typical: float, beside: dict[int, float], update_s: float
) -> tuple[LayerTime, ...]:
    all_bytes = sum(shape.parameter_bytes for shape in session.shapes.layers.values()) or 1
    layers = []
    for name in _layer_names(session):
        shape = session.shapes.layers.get(name, LayerShape(_kind_without_module(name)))

        def of(part: str, name: str = name) -> Spread:
            """Relative to the neighbours first, so that the machine's drift does not widen the spread."""
            return spread(
                [
                    typical * s.owners.get((part, name), 0.0) * factors[s.number] / beside[s.number]
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
    """How often forward and backward go over a layer's bytes, judged by its arithmetic."""
    return 1.0 + shape.backward_flops / shape.flops if shape.flops else 2.0


def _layer_samples(session: Session) -> tuple[LayerSample, ...]:
    all_bytes = sum(shape.parameter_bytes for shape in session.shapes.layers.values()) or 1
    rows = []
    names = _layer_names(session)
    for s in _evenly(session.samples, max(1, KEEP_IN_RECORD // max(1, len(names)))):
        update = sum(t for (part, _), t in s.owners.items() if part == "update")
        for name in names:
            shape = session.shapes.layers.get(name)
            share = shape.parameter_bytes / all_bytes if shape else 0.0
            forward, backward = s.owners.get(("forward", name), 0.0), s.owners.get(("backward", name), 0.0)
            rows.append(LayerSample(s.number, name, forward, backward, update * share))
    return tuple(rows)


def _evenly(items: list, most: int = KEEP_IN_RECORD) -> list:  # type: ignore[type-arg]
    step = max(1, -(-len(items) // most))
    return items[::step]


def _trace(tape: Tape | None, device: str) -> Trace:
    if tape is None:
        return Trace()
    origin = tape.marks[0][3]
    spans = []
    for (_, (part, row), _, start), (_, _, end, _) in zip(tape.marks, tape.marks[1:], strict=False):
        if end > start:
            note = "recomputed" if RECOMPUTE in row else ""
            spans.append(Span(device, f"{part} {row}".strip(), (start - origin) * 1e-9, (end - origin) * 1e-9, note))
    return Trace(tuple(spans))
