"""The record of a verification: predicted and measured times, part by part.

The error is predicted / measured - 1: above zero, the run was faster than predicted.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from paceline.cost.prediction import Prediction
from paceline.measurement.measurement import Measurement
from paceline.measurement.summary import NAMED_PARTS
from paceline.notebook import NotebookRecord
from paceline.record_fields import MAY_BE_NAN

NOTABLE = 0.05
KINDS = ("iteration", "part", "layer", "distribution", "epoch")


@dataclass(frozen=True)
class Comparison:
    """A predicted and a measured time."""

    name: str
    kind: str
    """iteration, part, layer (forward and backward together), distribution (of a worker's step) or epoch."""
    predicted_s: float
    low_s: float = field(metadata=MAY_BE_NAN)
    """Lower end of the 90 % interval; NaN if there is none."""
    high_s: float = field(metadata=MAY_BE_NAN)
    measured_s: float = field(metadata=MAY_BE_NAN)
    error: float
    """NaN if nothing was measured."""
    within: bool | None
    """Whether the interval covers the measured time; None if there is none."""


@dataclass(frozen=True, repr=False)
class Verification(NotebookRecord):
    """Predicted beside measured times: the result of `paceline.verify`."""

    name: str
    """The network."""
    batch: int
    device: str
    step: str
    saved: bool
    """Whether the prediction was saved beforehand; otherwise it was made from the run's record."""
    rows: tuple[Comparison, ...]
    prediction: Prediction
    notes: tuple[str, ...] = ()

    def facts(self) -> dict[str, Any]:
        covered, total = self.coverage
        return {
            "network": self.name, "batch": self.batch, "device": self.device, "step": self.step,
            "intervals that cover the measured time": f"{covered} of {total}",
        }  # fmt: skip

    def __str__(self) -> str:
        return "\n".join([super().__str__(), *(f"note: {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        return super()._repr_html_() + "".join(f"<p>note: {html.escape(note)}</p>" for note in self.notes)

    def table(self) -> list[dict[str, Any]]:
        return [vars(row) for row in self.rows]

    def of_kind(self, *kinds: str) -> tuple[Comparison, ...]:
        return tuple(row for row in self.rows if row.kind in kinds)

    def notable(self, share: float) -> Iterator[Comparison]:
        """All rows but parts and layers that take less than a share of the iteration."""
        whole_s = max((row.measured_s for row in self.of_kind("iteration")), default=0.0)
        for row in self.rows:
            if row.kind not in ("part", "layer") or max(row.predicted_s, row.measured_s) >= share * whole_s:
                yield row

    def prediction_rows(self) -> Iterator[tuple[str, float, float, float, float]]:
        """Name, predicted, low, high and measured time of the rows a report shows; parts and layers with a negligible
        time are left out."""
        for row in self.notable(NOTABLE):
            what = {"iteration": "an iteration", "epoch": "an epoch"}.get(row.name, row.name)
            is_layer = row.kind == "layer" and not what.startswith("(")
            name = described(f"layer {what}" if is_layer else what, self.name, self.batch, self.device)
            yield name, row.predicted_s, row.low_s, row.high_s, row.measured_s

    @property
    def coverage(self) -> tuple[int, int]:
        """How many intervals cover the measured time, and how many intervals there are."""
        known = [row.within for row in self.rows if row.within is not None]
        return sum(known), len(known)


def described(what: str, network: str, batch: int, device: str) -> str:
    """The label of a time in reports."""
    return f"{what} of {network} at batch {batch} on {device}"


def compared(
    name: str, kind: str, predicted_s: float, measured_s: float, low_s: float = math.nan, high_s: float = math.nan
) -> Comparison:
    known = math.isfinite(low_s) and math.isfinite(high_s)
    error = predicted_s / measured_s - 1.0 if measured_s > 0 else math.nan
    within = low_s <= measured_s <= high_s if known and math.isfinite(measured_s) else None
    return Comparison(name, kind, predicted_s, low_s, high_s, measured_s, error, within)


def compare_measurement(prediction: Prediction, found: Measurement) -> Iterator[Comparison]:
    """Compares the iteration, its parts and its layers; layers are matched by name."""
    p = prediction
    yield compared("iteration", "iteration", p.iteration_s, found.iteration_s.median_s, p.low_s, p.high_s)
    for part in NAMED_PARTS:
        predicted_s, measured_s = p.parts_s.get(part, 0.0), found.parts_s.get(part, 0.0)
        if max(predicted_s, measured_s) > 0:
            yield compared(part, "part", predicted_s, measured_s)
    measured = {layer.name: layer.forward_s.median_s + layer.backward_s.median_s for layer in found.layers}
    for layer in p.layers:
        both_s = layer.forward_s + layer.backward_s
        if layer.name in measured and max(both_s, measured[layer.name]) > 0:
            interval = (layer.low_s, layer.high_s) if both_s > 0 else ()  # a container has no time of its own
            yield compared(layer.name, "layer", both_s, measured[layer.name], *interval)


def without_counterpart(prediction: Prediction, found: Measurement) -> tuple[list[str], list[str]]:
    """Layers with a non-zero time that were only predicted, and only measured."""
    predicted = {layer.name for layer in prediction.layers if layer.forward_s + layer.backward_s > 0}
    measured = {layer.name for layer in found.layers if layer.forward_s.median_s + layer.backward_s.median_s > 0}
    all_predicted, all_measured = {layer.name for layer in prediction.layers}, {layer.name for layer in found.layers}
    return sorted(predicted - all_measured), sorted(measured - all_predicted)
