"""The record of a prediction: how long an iteration will take, of what parts, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass, field

from paceline.cost.exchange import ExchangeCost


@dataclass(frozen=True)
class LayerPrediction:
    """One layer, by the name a measurement would have for it."""

    name: str
    kind: str
    forward_s: float
    backward_s: float
    update_s: float
    low_s: float
    """With `high_s` the interval that holds forward and backward together in nine cases of ten."""
    high_s: float
    flops: float
    """Forward and backward."""

    @property
    def total_s(self) -> float:
        return self.forward_s + self.backward_s + self.update_s


@dataclass(frozen=True)
class Prediction:
    name: str
    batch: int
    device: str
    """The device's name; `basis` says where its speed is known from."""
    step: str
    precision: str
    threads: int
    """Of a CPU; 0 on a GPU."""
    iteration_s: float
    low_s: float
    """With `high_s` the interval that holds the iteration in nine cases of ten."""
    high_s: float
    parts_s: dict[str, float]
    """By the names of a measurement's parts; they add up to the iteration."""
    layers: tuple[LayerPrediction, ...]
    roofline_s: float
    """What peak rates alone would say, for comparison."""
    memory_bytes: int
    """Needed on the device: parameters, gradients, optimizer, activations, workspace."""
    parameter_bytes: int
    """What one exchange of all parameters, or of a gradient, moves."""
    samples: int
    """In an epoch; 0 if the data are not known."""
    basis: str
    """`calibrated here`, or from which relative and data sheet."""
    unknown: tuple[str, ...] = ()
    """Operations of no known family, which make the interval wider."""
    conditions: dict[str, str] = field(default_factory=dict)
    exchange: tuple[ExchangeCost, ...] = ()
    """Of workers on one machine with this device, where that was calibrated."""

    @property
    def samples_per_s(self) -> float:
        return self.batch / self.iteration_s

    @property
    def epoch_s(self) -> float:
        """One worker's pass over the data; 0 if their number is not known."""
        return -(-self.samples // self.batch) * self.iteration_s if self.samples else 0.0
