"""Composes the time of an iteration from its operations and the overheads of the step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, hypot, prod, sqrt

from paceline.cost import host_queue
from paceline.cost.caches import Costed, displaced_by_iteration, slowed_without_code
from paceline.cost.calibration import StepOverheads
from paceline.cost.calls import Calls, calls_of, displaced_between_calls
from paceline.cost.model import CostModel
from paceline.cost.op_tracing import NetworkShape
from paceline.cost.prediction import LayerPrediction
from paceline.cost.timing import ELEMENTWISE, probe_of
from paceline.cost.update_tracing import update_operations, update_passes
from paceline.measurement.mark_log import OUTSIDE, SCORE

Z_90 = 1.645
"""Standard deviations on each side of a 90 % interval."""
FAMILY_CORRELATION = 0.5
"""Share of the error variance that operations of one family have in common; the rest averages out."""
MIN_LOG_SD = 0.05
"""Lower limit for an iteration and for a layer: repeated runs vary at least this much."""

Drift = Mapping[str, float]


@dataclass(frozen=True)
class Iteration:
    seconds: float
    low_s: float
    high_s: float
    parts_s: dict[str, float]
    layers: tuple[LayerPrediction, ...]

    def at_most(self, limit_s: float) -> Iteration:
        """The same in less time, if it takes longer than that."""
        share = min(1.0, limit_s / self.seconds)
        layers = (replace(each, **{name: share * getattr(each, name) for name in _LAYER_TIMES}) for each in self.layers)
        parts = {name: share * took for name, took in self.parts_s.items()}
        return Iteration(share * self.seconds, share * self.low_s, share * self.high_s, parts, tuple(layers))


_LAYER_TIMES = ("forward_s", "backward_s", "update_s", "low_s", "high_s")


def update_alone_s(model: CostModel, shape: NetworkShape, step: str, on_gpu: bool) -> float:
    """The time of updating all parameters.

    On a GPU it is that of passes over memory alone, each like an in-place addition. On a CPU it is that of the update's
    operations, which find nothing in the caches after a backward pass.
    """
    seconds = 0.0
    for phase in shape.phases:
        elements = sum(map(prod, phase.parameter_shapes))
        if elements and on_gpu:
            passes = update_passes(phase.parameter_shapes, phase.rule, step, on_gpu)
            seconds += passes * model.seconds("add_", (elements,))
        elif elements:
            operations = update_operations(phase.parameter_shapes, phase.rule, step, on_gpu)
            seconds += sum(each.seconds for each in model.timed(operations))
    return seconds


def launches_s(
    model: CostModel, overheads: StepOverheads, shape: NetworkShape, costed: Sequence[Costed]
) -> list[float]:
    """Host time of each launch of a step that is not captured; the last one is the update's."""
    views_s = overheads.host_view_s * shape.views / max(1, len(costed))
    found = [overheads.host_factor * model.host_s(each.operation) + views_s for each in costed]
    return [*found, overheads.host_s + overheads.host_parameter_s * shape.parameter_tensors]


def compose_iteration(
    model: CostModel, step_overheads: StepOverheads, shape: NetworkShape, costed: Sequence[Costed], *,
    step: str, update_s: float, sample_elements: int, on_gpu: bool, drift: Drift | None = None,
    extra_log_sd: float = 0.0,
) -> Iteration:  # fmt: skip
    """`update_s`: time of the update alone; `drift`: slowdown of the machine since it was calibrated, by probe;
    `extra_log_sd`: extra uncertainty of all operations."""
    slower = drift or {}
    host_drift = slower.get(ELEMENTWISE, 1.0)
    seconds = _operations_s(step_overheads, costed, slower)
    sds = [
        took * hypot(each.deviation, step_overheads.spreads.get(each.operation.family, 0.0), extra_log_sd)
        for each, took in zip(costed, seconds, strict=True)
    ]
    rows = _rows(costed, seconds, sds)
    cache_bytes = model.calibration.cache_bytes
    slowed = slowed_without_code(displaced_by_iteration(costed, cache_bytes), cache_bytes)
    if not on_gpu:
        calls = calls_of(shape, costed)
        called = slowed_without_code(displaced_between_calls(calls, costed, cache_bytes), cache_bytes)
        # A chain calls no modules, so a slower interpreter does not matter.
        _add_calls(rows, step_overheads, calls, called, slowed, 1.0 if step == "chain" else host_drift)
    score_s = host_drift * slowed * step_overheads.score_s
    parts = {
        "load": 0.0 if on_gpu else host_drift * _load_s(model, step_overheads, sample_elements),
        "copy": 0.0,
        "forward": sum(row.forward_s for row in rows.values()) + score_s,
        "backward": sum(row.backward_s for row in rows.values()),
        "update": host_drift * _update_s(step_overheads, shape, update_s, step),
        "communicate": 0.0,
        "idle": 0.0,
        "loop": host_drift * slowed * step_overheads.loop_s,
    }
    host_bound = False
    if on_gpu:
        launches = [] if step in ("graph", "chain") else launches_s(model, step_overheads, shape, costed)
        busy_s = sum(parts.values())
        parts["idle"] = host_drift * _idle_s(seconds, busy_s, launches, step_overheads.gap_s)
        host_bound = sum(launches) > busy_s
    whole = sum(parts.values())
    own_sd = step_overheads.host_log_sd if host_bound else _whole_sd(costed, sds) / whole
    # Close to the larger of the two, and never narrower for an operation that is known less.
    log_sd = max(MIN_LOG_SD, sqrt(hypot(own_sd**2, step_overheads.iteration_log_sd**2)))
    width = Z_90 * hypot(log_sd, 0.5 * extra_log_sd)
    layers = _layers(shape, rows, parts["update"])
    if score_s:
        layers.append(LayerPrediction(SCORE, "outside", score_s, 0.0, 0.0, score_s / 2, score_s * 2, 0.0))
    return Iteration(whole, whole * exp(-width), whole * exp(width), parts, tuple(layers))


def _operations_s(overheads: StepOverheads, costed: Sequence[Costed], slower: Drift) -> list[float]:
    """The time of each operation in a network."""
    families = [each.operation.family for each in costed]
    return [
        each.seconds * overheads.factors.get(family, 1.0) * slower.get(probe_of(family), 1.0)
        for family, each in zip(families, costed, strict=True)
    ]


def _add_calls(
    rows: dict[str, _Row], overheads: StepOverheads, calls: Calls, called: float, slowed: float, drift: float
) -> None:
    """Adds the time to call the layers, the loss and the backward pass.

    `called` and `slowed`: how many times as long that takes from layer to layer and once in an iteration, because the
    caches have lost the code.
    """
    for (name, direction), count in calls.items():
        each_s = overheads.forward_s if direction == "forward" else overheads.backward_s
        rows[name].add_call(direction, drift * called * count * each_s, overheads.call_spread)
    whole, times = next(((name, count) for (name, _), count in calls.items()), (OUTSIDE, 1))
    slowed *= drift * max(1, times)  # for each micro-batch or phase
    rows[whole].add_call("forward", slowed * overheads.network_s, overheads.call_spread)
    rows[OUTSIDE].add_call("forward", slowed * overheads.loss_s, overheads.call_spread)
    rows[OUTSIDE].add_call("backward", slowed * overheads.loss_backward_s, overheads.call_spread)


def _load_s(model: CostModel, overheads: StepOverheads, elements: int) -> float:
    """Requesting and gathering a batch; an older calibration does not have the second, which is like a copy."""
    return overheads.load_s + (overheads.load_element_s * elements or model.seconds("copy", (max(1, elements),)))


def _update_s(overheads: StepOverheads, shape: NetworkShape, alone_s: float, step: str) -> float:
    joined = 0 if step == "chain" else shape.parameter_tensors
    return overheads.update_s + overheads.update_tensor_s * joined + overheads.update_factor * alone_s


def _idle_s(seconds: Sequence[float], busy_s: float, launches: Sequence[float], gap_s: float) -> float:
    """Time that a GPU does not compute: gaps between operations and, with `launches`, waiting for the host."""
    if not launches:
        return gap_s * len(seconds)
    runs = [*(took + gap_s for took in seconds), busy_s - sum(seconds)]
    return host_queue.iteration_s(launches, runs) - busy_s


@dataclass
class _Row:
    """The operations of one layer."""

    forward_s: float = 0.0
    backward_s: float = 0.0
    variance: float = 0.0
    flops: float = 0.0

    def add_call(self, direction: str, seconds: float, spread: float) -> None:
        """Adds what calls take besides their operations; `spread` is their standard deviation, as a share."""
        if direction == "forward":
            self.forward_s += seconds
        else:
            self.backward_s += seconds
        self.variance += (spread * seconds) ** 2


def _rows(costed: Sequence[Costed], seconds: Sequence[float], sds: Sequence[float]) -> dict[str, _Row]:
    rows: dict[str, _Row] = defaultdict(_Row)
    for each, took, sd in zip(costed, seconds, sds, strict=True):
        row = rows[each.operation.row]
        if each.operation.direction == "forward":
            row.forward_s += took
        else:
            row.backward_s += took
        row.variance += sd**2
        row.flops += each.operation.flops
    return rows


def _whole_sd(costed: Sequence[Costed], sds: Sequence[float]) -> float:
    """The standard deviation of the sum of all operations."""
    families: dict[str, list[float]] = defaultdict(list)
    for each, sd in zip(costed, sds, strict=True):
        families[each.operation.family].append(sd)
    shared = sum(sum(own) ** 2 for own in families.values())
    return sqrt(FAMILY_CORRELATION * shared + (1 - FAMILY_CORRELATION) * sum(sd**2 for sd in sds))


def _layers(shape: NetworkShape, rows: Mapping[str, _Row], update_s: float) -> list[LayerPrediction]:
    """Also rows that are recomputed or belong to no module; the update is shared by numbers of parameters."""
    layers = []
    trained = max(1, sum(row.parameters for row in shape.rows.values()))
    for name in dict.fromkeys((*shape.rows, *rows)):
        known, own = shape.rows.get(name), rows.get(name, _Row())
        both = own.forward_s + own.backward_s
        span = exp(Z_90 * max(sqrt(own.variance) / max(both, 1e-12), MIN_LOG_SD))
        update = update_s * known.parameters / trained if known else 0.0
        kind = known.kind if known else "outside"
        layers.append(
            LayerPrediction(name, kind, own.forward_s, own.backward_s, update, both / span, both * span, own.flops)
        )
    return layers
