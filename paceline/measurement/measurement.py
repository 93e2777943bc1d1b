"""The record of a measurement: the time of an untouched iteration, and the parts and layers it is made of."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from paceline.notebook import NotebookRecord
from paceline.record_fields import MEASURED
from paceline.trace import Trace


@dataclass(frozen=True)
class Spread:
    """A distribution of seconds: median, 10th and 90th percentile."""

    median_s: float = field(metadata=MEASURED)
    p10_s: float = field(metadata=MEASURED)
    p90_s: float = field(metadata=MEASURED)


@dataclass(frozen=True)
class LayerTime:
    """One layer of the network, with its times scaled to an untouched iteration."""

    name: str
    kind: str
    calls: int
    forward_s: Spread
    backward_s: Spread
    update_s: Spread
    update_apportioned: bool
    """Whether `update_s` is the layer's share by parameter bytes of an update that runs over all layers at once."""
    flops: float
    """FLOP of one forward pass over the batch; a backward pass takes about twice as many."""
    bytes: int
    """Bytes read and written by the forward pass: inputs, outputs, parameters."""
    parameters: int
    activation_bytes: int
    gradient_bytes: int
    achieved_flops: float
    """FLOP/s over forward and backward together."""
    achieved_bytes: float

    @property
    def total_s(self) -> float:
        return self.forward_s.median_s + self.backward_s.median_s + self.update_s.median_s


@dataclass(frozen=True)
class IterationTime:
    """One recorded iteration: sampled ones carry the clock's marks, the others are untouched."""

    number: int
    seconds: float
    sampled: bool
    loss: float = math.nan
    top_1: float = math.nan
    top_n: float = math.nan


@dataclass(frozen=True)
class LayerSample:
    """A layer's times in one sampled iteration, before scaling."""

    number: int
    layer: str
    forward_s: float = field(metadata=MEASURED)
    backward_s: float = field(metadata=MEASURED)
    update_s: float = field(metadata=MEASURED)


@dataclass(frozen=True)
class Measurement(NotebookRecord):
    name: str
    batch: int
    device: str
    device_name: str
    step: str
    iterations: int
    sampled: int
    iteration_s: Spread
    """Time of the untouched iterations."""
    parts_s: dict[str, float] = field(metadata=MEASURED)
    """Seconds by part, scaled so that they add up to an untouched iteration."""
    accounted: float
    """Sum of the named parts before scaling, divided by the untouched iteration."""
    scale: float
    """Factor from sampled iterations to untouched ones."""
    overhead: float
    """Overhead of measuring: total time divided by what it would have been untouched, minus one."""
    layers: tuple[LayerTime, ...]
    device_flops: float
    """FLOP/s that a large matrix product reaches on the device."""
    device_bytes: float
    """Bytes/s, read plus written, that a large copy reaches on the device."""
    peak_memory_bytes: int
    idle_causes_s: dict[str, float] = field(default_factory=dict, metadata=MEASURED)
    """Idle seconds per iteration by cause, before scaling."""
    hidden_communication_s: float = 0.0
    """Communication per iteration that overlapped with computing and so cost no time."""
    eager_layers: tuple[LayerTime, ...] = ()
    """If the step runs as one compiled unit: the layers of the plain eager step, which add up to `eager_s`."""
    eager_s: float = 0.0
    conditions: dict[str, str] = field(default_factory=dict)
    kept: tuple[IterationTime, ...] = ()
    samples: tuple[LayerSample, ...] = ()
    trace: Trace = field(default_factory=Trace)
    """The last sampled iteration as a trace."""

    def facts(self) -> dict[str, Any]:
        return {
            "network": self.name, "batch": self.batch, "device": self.device_name, "step": self.step,
            "iteration_s": self.iteration_s.median_s, "accounted": self.accounted, "overhead": self.overhead,
        }  # fmt: skip

    def table(self) -> list[dict[str, Any]]:
        total_s = sum(self.parts_s.values()) or 1.0
        return [
            {
                "layer": layer.name, "kind": layer.kind, "forward_s": layer.forward_s.median_s,
                "backward_s": layer.backward_s.median_s, "update_s": layer.update_s.median_s,
                "share": layer.total_s / total_s, "parameters": layer.parameters,
            }
            for layer in self.layers
        ]  # fmt: skip
