"""Composes the time of an iteration from its operations and the overheads of the step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, hypot, sqrt

from paceline.cost import host_queue
from paceline.cost.calibration import StepOverheads
from paceline.cost.model import Costed, CostModel
from paceline.cost.op_tracing import NetworkShape
from paceline.cost.prediction import LayerPrediction
from paceline.cost.timing import ELEMENTWISE, probe_of
from paceline.measurement.mark_log import SCORE

Z_90 = 1.645
"""Standard deviations on each side of a 90 % interval."""
FAMILY_CORRELATION = 0.5
"""Share of the error variance that operations of one family have in common; the rest averages out."""
MIN_LOG_SD = 0.05
"""Lower limit for a whole iteration: repeated runs vary at least this much."""

# The update of each optimizer as passes over the parameters, each like an in-place addition.
UPDATE_PASSES = {
    "sgd": 1.0, "momentum": 1.7, "nesterov": 1.7, "adagrad": 5.0, "adadelta": 9.0, "rmsprop": 6.0, "adam": 8.0,
    "adamw": 9.0, "nadam": 11.0,
}  # fmt: skip


Drift = Mapping[str, float]


@dataclass(frozen=True)
class Iteration:
    seconds: float
    low_s: float
    high_s: float
    parts_s: dict[str, float]
    layers: tuple[LayerPrediction, ...]


def update_alone_s(model: CostModel, shape: NetworkShape, optimizer: str) -> float:
    """The time of updating all parameters, as passes over memory alone; the user's own optimizer counts as AdamW."""
    elements = shape.parameter_bytes // 4
    passes = UPDATE_PASSES.get(optimizer, UPDATE_PASSES["adamw"])
    return passes * model.seconds("add_", (elements,)) if elements else 0.0


def launches_s(
    model: CostModel, overheads: StepOverheads, shape: NetworkShape, costed: Sequence[Costed]
) -> list[float]:
    """Host time of each launch of a step that is not captured; the last one is the update's."""
    factors = {"forward": overheads.host_forward, "backward": overheads.host_backward}
    found = [factors[each.operation.direction] * model.host_s(each.operation.family) for each in costed]
    return [*found, overheads.host_s + overheads.host_parameter_s * shape.parameter_tensors]


def compose_iteration(
    model: CostModel, step_overheads: StepOverheads, shape: NetworkShape, costed: Sequence[Costed], *,
    step: str, optimizer: str, sample_elements: int, on_gpu: bool, drift: Drift | None = None,
    extra_log_sd: float = 0.0,
) -> Iteration:  # fmt: skip
    """`drift`: slowdown of the machine since it was calibrated, by probe; `extra_log_sd`: extra uncertainty of all
    operations."""
    slower = drift or {}
    host_drift = slower.get(ELEMENTWISE, 1.0)
    extra = {"forward": step_overheads.forward_s, "backward": step_overheads.backward_s}
    if step == "chain":
        extra = dict.fromkeys(extra, 0.0)
    seconds = []
    for each in costed:
        family = each.operation.family
        alone_s = each.seconds * step_overheads.factors.get(family, 1.0) * slower.get(probe_of(family), 1.0)
        seconds.append(alone_s + extra[each.operation.direction] * host_drift)
    by_row: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    row_variance: dict[str, float] = defaultdict(float)
    family_sds: dict[str, list[float]] = defaultdict(list)
    for each, took in zip(costed, seconds, strict=True):
        operation = each.operation
        by_row[operation.row][operation.direction] += took
        deviation = sqrt(each.deviation**2 + step_overheads.spreads.get(operation.family, 0.0) ** 2 + extra_log_sd**2)
        row_variance[operation.row] += (took * deviation) ** 2
        family_sds[operation.family].append(took * deviation)
    update_s = step_overheads.update_factor * update_alone_s(model, shape, optimizer)
    parts = {
        "load": step_overheads.load_s if not on_gpu else 0.0,
        "copy": 0.0,
        "forward": sum(row["forward"] for row in by_row.values()) + host_drift * step_overheads.score_s,
        "backward": sum(row["backward"] for row in by_row.values()),
        "update": update_s,
        "communicate": 0.0,
        "idle": 0.0,
        "loop": step_overheads.loop_s,
    }
    host_bound = False
    if not on_gpu:
        gathered_s = step_overheads.load_element_s * sample_elements
        parts["load"] += gathered_s or model.seconds("copy", (max(1, sample_elements),))
    else:
        busy, host_s = sum(parts.values()), 0.0
        parts["idle"] = step_overheads.gap_s * len(costed)
        if step not in ("graph", "chain"):
            launches = launches_s(model, step_overheads, shape, costed)
            runs = [*(took + step_overheads.gap_s for took in seconds), busy - sum(seconds)]
            parts["idle"] = host_queue.iteration_s(launches, runs) - busy
            host_s = sum(launches)
        host_bound = host_s > busy
    parts = {name: took if name in ("forward", "backward") else host_drift * took for name, took in parts.items()}
    whole = sum(parts.values())
    variance = sum(
        FAMILY_CORRELATION * sum(d) ** 2 + (1 - FAMILY_CORRELATION) * sum(v * v for v in d) for d in family_sds.values()
    )
    own_sd = step_overheads.host_log_sd if host_bound else sqrt(variance) / whole
    least = max(MIN_LOG_SD, step_overheads.iteration_log_sd)
    # Close to the larger of the two, and never narrower for an operation that is known less.
    log_sd = sqrt(hypot(own_sd**2, least**2))
    width = Z_90 * hypot(log_sd, MIN_LOG_SD, 0.5 * extra_log_sd)
    layers = []
    trained = max(1, sum(row.parameters for row in shape.rows.values()))
    for name in dict.fromkeys((*shape.rows, *by_row)):  # also rows that are recomputed or belong to no module
        forward, backward = by_row[name]["forward"], by_row[name]["backward"]
        row = shape.rows.get(name)
        own = sqrt(row_variance[name]) / max(forward + backward, 1e-12)
        span = exp(Z_90 * max(own, MIN_LOG_SD))
        flops = sum(c.operation.flops for c in costed if c.operation.row == name)
        update = parts["update"] * (row.parameters / trained if row else 0.0)
        kind = row.kind if row else "outside"
        both = forward + backward
        layers.append(LayerPrediction(name, kind, forward, backward, update, both / span, both * span, flops))
    if step_overheads.score_s:
        score = host_drift * step_overheads.score_s
        layers.append(LayerPrediction(SCORE, "outside", score, 0.0, 0.0, score / 2, score * 2, 0.0))
    return Iteration(whole, whole * exp(-width), whole * exp(width), parts, tuple(layers))
