"""The record of a prediction: the time of an iteration, its parts and layers, and a 90 % interval."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from paceline.cost.exchange import ExchangeCost
from paceline.notebook import NotebookRecord


@dataclass(frozen=True)
class LayerPrediction:
    """One layer, under the name a measurement would use."""

    name: str
    kind: str
    forward_s: float
    backward_s: float
    update_s: float
    low_s: float
    """Lower end of the 90 % interval of forward and backward together."""
    high_s: float
    flops: float
    """FLOP of forward and backward."""

    @property
    def total_s(self) -> float:
        return self.forward_s + self.backward_s + self.update_s


@dataclass(frozen=True, repr=False)
class Prediction(NotebookRecord):
    """The predicted time and memory of a training step: the result of `paceline.predict`."""

    name: str
    batch: int
    device: str
    """The device's name; `basis` says how its speed is known."""
    step: str
    precision: str
    threads: int
    """CPU threads; 0 on a GPU."""
    iteration_s: float
    low_s: float
    """Lower end of the 90 % interval of `iteration_s`."""
    high_s: float
    parts_s: dict[str, float]
    """Seconds by part, named as in a measurement; they add up to the iteration."""
    layers: tuple[LayerPrediction, ...]
    roofline_s: float
    """The time at peak rates alone, for comparison."""
    memory_bytes: int
    """Device memory needed: parameters, gradients, optimizer state, activations, workspace."""
    parameter_bytes: int
    """Size of the parameters, and of a gradient."""
    samples: int
    """Samples per epoch; 0 if unknown."""
    basis: str
    """`calibrated here`, or the similar device and data sheet the prediction is based on."""
    unknown: tuple[str, ...] = ()
    """Operations of no known family; they widen the interval."""
    conditions: dict[str, str] = field(default_factory=dict)
    exchange: tuple[ExchangeCost, ...] = ()
    """Cost of exchanging parameters between workers on one machine with this device, where calibrated."""

    def facts(self) -> dict[str, Any]:
        return {
            "network": self.name, "batch": self.batch, "device": self.device, "step": self.step,
            "precision": self.precision, "iteration_s": self.iteration_s, "low_s": self.low_s, "high_s": self.high_s,
            "samples/s": self.samples_per_s, "basis": self.basis,
        }  # fmt: skip

    def table(self) -> list[dict[str, Any]]:
        return [
            {
                "layer": layer.name, "kind": layer.kind, "forward_s": layer.forward_s, "backward_s": layer.backward_s,
                "update_s": layer.update_s, "low_s": layer.low_s, "high_s": layer.high_s,
                "share": layer.total_s / self.iteration_s,
            }
            for layer in self.layers
        ]  # fmt: skip

    @property
    def samples_per_s(self) -> float:
        return self.batch / self.iteration_s

    @property
    def epoch_s(self) -> float:
        """Time of one worker's pass over the data; 0 if `samples` is unknown."""
        return -(-self.samples // self.batch) * self.iteration_s if self.samples else 0.0
