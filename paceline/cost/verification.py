"""The record of a verification: what was predicted beside what was measured, part by part.

The error is predicted / measured - 1: above zero, it was faster than predicted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from paceline.cost.prediction import Prediction
from paceline.measurement.mark_log import PARTS
from paceline.measurement.measurement import Measurement
from paceline.record_fields import MAY_BE_NAN

NOTABLE = 0.05
KINDS = ("iteration", "part", "layer", "distribution", "epoch")


@dataclass(frozen=True)
class Comparison:
    """One thing that was predicted and measured."""

    name: str
    kind: str
    """iteration, part, layer (forward and backward together), distribution (of a worker's step) or epoch."""
    predicted_s: float
    low_s: float = field(metadata=MAY_BE_NAN)
    """With `high_s` the interval that should hold the measured one in nine cases of ten; NaN where none was given."""
    high_s: float = field(metadata=MAY_BE_NAN)
    measured_s: float = field(metadata=MAY_BE_NAN)
    error: float
    """NaN where nothing was measured."""
    within: bool | None
    """Whether the interval held; None where there is none."""


@dataclass(frozen=True)
class Verification:
    name: str
    """Of the network."""
    batch: int
    device: str
    step: str
    saved: bool
    """Whether the prediction was there before, or was made now from what the run's record tells."""
    rows: tuple[Comparison, ...]
    prediction: Prediction
    notes: tuple[str, ...] = ()

    def of_kind(self, *kinds: str) -> tuple[Comparison, ...]:
        return tuple(row for row in self.rows if row.kind in kinds)

    def prediction_rows(self) -> Iterator[tuple[str, float, float, float, float]]:
        """Name, predicted, low, high and measured of what a report shows; parts and layers that take next to nothing
        are left out."""
        whole_s = max((row.measured_s for row in self.of_kind("iteration")), default=math.inf)
        for row in self.rows:
            if row.kind in ("part", "layer") and max(row.predicted_s, row.measured_s) < NOTABLE * whole_s:
                continue
            what = {"iteration": "an iteration", "epoch": "an epoch"}.get(row.name, row.name)
            name = described(f"layer {what}" if row.kind == "layer" else what, self.name, self.batch, self.device)
            yield name, row.predicted_s, row.low_s, row.high_s, row.measured_s

    @property
    def held(self) -> tuple[int, int]:
        """How many intervals held, and how many there are."""
        told = [row.within for row in self.rows if row.within is not None]
        return sum(told), len(told)


def described(what: str, network: str, batch: int, device: str) -> str:
    """What a report calls it, wherever the figure comes from."""
    return f"{what} of {network} at batch {batch} on {device}"


def compared(
    name: str, kind: str, predicted_s: float, measured_s: float, low_s: float = math.nan, high_s: float = math.nan
) -> Comparison:
    known = math.isfinite(low_s) and math.isfinite(high_s)
    error = predicted_s / measured_s - 1.0 if measured_s > 0 else math.nan
    within = low_s <= measured_s <= high_s if known and math.isfinite(measured_s) else None
    return Comparison(name, kind, predicted_s, low_s, high_s, measured_s, error, within)


def compare_measurement(prediction: Prediction, found: Measurement) -> Iterator[Comparison]:
    """The iteration, its parts and its layers; layers go by their names."""
    p = prediction
    yield compared("iteration", "iteration", p.iteration_s, found.iteration_s.median_s, p.low_s, p.high_s)
    for part in PARTS:
        predicted_s, measured_s = p.parts_s.get(part, 0.0), found.parts_s.get(part, 0.0)
        if max(predicted_s, measured_s) > 0:
            yield compared(part, "part", predicted_s, measured_s)
    measured = {layer.name: layer.forward_s.median_s + layer.backward_s.median_s for layer in found.layers}
    for layer in p.layers:
        both_s = layer.forward_s + layer.backward_s
        if layer.name in measured and max(both_s, measured[layer.name]) > 0:
            yield compared(layer.name, "layer", both_s, measured[layer.name], layer.low_s, layer.high_s)


def without_counterpart(prediction: Prediction, found: Measurement) -> tuple[list[str], list[str]]:
    """Layers with some time that were only predicted, and only measured."""
    predicted = {layer.name for layer in prediction.layers if layer.forward_s + layer.backward_s > 0}
    measured = {layer.name for layer in found.layers if layer.forward_s.median_s + layer.backward_s.median_s > 0}
    all_predicted, all_measured = {layer.name for layer in prediction.layers}, {layer.name for layer in found.layers}
    return sorted(predicted - all_measured), sorted(measured - all_predicted)
