"""Puts an iteration together from its operations: what each step kind adds, hides and waits for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, sqrt

from paceline.cost.calibration import Habits
from paceline.cost.model import Costed, CostModel
from paceline.cost.prediction import LayerPrediction
from paceline.cost.reading import NetworkShape
from paceline.cost.timing import ELEMENTWISE, probe_of
from paceline.measurement.mark_log import SCORE

NINE_IN_TEN = 1.645
"""Standard deviations to each side."""
SHARED = 0.5
"""How much of an error one family's operations have in common; the rest averages out over them."""
LEAST_DEVIATION = 0.05
"""Of a whole iteration: no two runs of one are closer."""

# An update as passes over the parameters, each like adding two tensors into one.
PASSES = {
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
    """Of all parameters, as passes over so many numbers alone."""
    elements = shape.parameter_bytes // 4
    return PASSES[optimizer] * model.seconds("add_", (elements,)) if elements else 0.0


def put_together(
    model: CostModel, habits: Habits, shape: NetworkShape, costed: Sequence[Costed], *,
    step: str, optimizer: str, sample_elements: int, on_gpu: bool, drift: Drift | None = None, wider: float = 0.0,
) -> Iteration:  # fmt: skip
    """`drift`: how much slower the machine is now than when it was calibrated, by probe; `wider`: added to all
    deviations."""
    slower = drift or {}
    beside = slower.get(ELEMENTWISE, 1.0)
    extra = {"forward": habits.forward_s, "backward": habits.backward_s}
    if step == "chain":
        extra = dict.fromkeys(extra, 0.0)
    seconds = []
    for each in costed:
        family = each.operation.family
        alone_s = each.seconds * habits.factors.get(family, 1.0) * slower.get(probe_of(family), 1.0)
        seconds.append(alone_s + extra[each.operation.direction] * beside)
    by_row: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    doubt: dict[str, float] = defaultdict(float)
    doubts: dict[str, list[float]] = defaultdict(list)
    for each, took in zip(costed, seconds, strict=True):
        operation = each.operation
        by_row[operation.row][operation.direction] += took
        deviation = sqrt(each.deviation**2 + habits.spreads.get(operation.family, 0.0) ** 2 + wider**2)
        doubt[operation.row] += (took * deviation) ** 2
        doubts[operation.family].append(took * deviation)
    update_s = habits.update_factor * update_alone_s(model, shape, optimizer)
    parts = {
        "load": habits.load_s if not on_gpu else 0.0,
        "copy": 0.0,
        "forward": sum(row["forward"] for row in by_row.values()) + beside * habits.score_s,
        "backward": sum(row["backward"] for row in by_row.values()),
        "update": update_s,
        "communicate": 0.0,
        "idle": 0.0,
        "other": habits.loop_s,
    }
    if not on_gpu:
        gathered_s = habits.load_element_s * sample_elements
        parts["load"] += gathered_s or model.seconds("copy", (max(1, sample_elements),))
    elif step in ("graph", "chain"):
        parts["idle"] = habits.gap_s * len(costed)
    else:
        busy = sum(parts.values())
        parts["idle"] = max(habits.gap_s * len(costed), habits.launch_s * len(costed) - busy)
    parts = {name: took if name in ("forward", "backward") else beside * took for name, took in parts.items()}
    whole = sum(parts.values())
    variance = sum(SHARED * sum(d) ** 2 + (1 - SHARED) * sum(v * v for v in d) for d in doubts.values())
    width = NINE_IN_TEN * sqrt((sqrt(variance) / whole) ** 2 + LEAST_DEVIATION**2 + (0.5 * wider) ** 2)
    layers = []
    trained = max(1, sum(row.parameters for row in shape.rows.values()))
    for name in dict.fromkeys((*shape.rows, *by_row)):  # beside the modules, what is recomputed or belongs to none
        forward, backward = by_row[name]["forward"], by_row[name]["backward"]
        row = shape.rows.get(name)
        own = sqrt(doubt[name]) / max(forward + backward, 1e-12)
        span = exp(NINE_IN_TEN * max(own, LEAST_DEVIATION))
        flops = sum(c.operation.flops for c in costed if c.operation.row == name)
        update = parts["update"] * (row.parameters / trained if row else 0.0)
        kind = row.kind if row else "outside"
        both = forward + backward
        layers.append(LayerPrediction(name, kind, forward, backward, update, both / span, both * span, flops))
    if habits.score_s:
        score = beside * habits.score_s
        layers.append(LayerPrediction(SCORE, "outside", score, 0.0, 0.0, score / 2, score * 2, 0.0))
    return Iteration(whole, whole * exp(-width), whole * exp(width), parts, tuple(layers))
