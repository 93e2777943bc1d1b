"""The record of a measurement: what an untouched iteration takes, and who takes how much of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from paceline.trace import Trace


@dataclass(frozen=True)
class Spread:
    """Seconds: the median and the tenth and ninetieth percentile."""

    median_s: float
    p10_s: float
    p90_s: float


@dataclass(frozen=True)
class LayerTime:
    """One layer of the network, as its times stand in an untouched iteration."""

    name: str
    kind: str
    calls: int
    forward_s: Spread
    backward_s: Spread
    update_s: Spread
    update_apportioned: bool
    """The update has no layers of its own; its time is divided by bytes."""
    flops: float
    """Of one forward pass over the batch; a backward pass takes about twice as many."""
    bytes: int
    """Read and written by the forward pass: inputs, outputs, parameters."""
    parameters: int
    activation_bytes: int
    gradient_bytes: int
    achieved_flops: float
    """A second, forward and backward together."""
    achieved_bytes: float

    @property
    def total_s(self) -> float:
        return self.forward_s.median_s + self.backward_s.median_s + self.update_s.median_s


@dataclass(frozen=True)
class IterationTime:
    """One iteration that was kept: sampled ones carry the clock's marks, the others are untouched."""

    number: int
    seconds: float
    sampled: bool
    loss: float = math.nan
    top_1: float = math.nan
    top_n: float = math.nan


@dataclass(frozen=True)
class LayerSample:
    """A layer's times in one sampled iteration, before any scaling."""

    number: int
    layer: str
    forward_s: float
    backward_s: float
    update_s: float


@dataclass(frozen=True)
class Measurement:
    name: str
    batch: int
    device: str
    device_name: str
    step: str
    iterations: int
    sampled: int
    iteration_s: Spread
    """Of the untouched iterations."""
    parts_s: dict[str, float]
    """What an iteration is made of; scaled to the untouched one, so that the parts add up to it."""
    accounted: float
    """The named parts, before any scaling, over the untouched iteration."""
    scale: float
    """What the sampled iterations had to be multiplied by to meet the untouched ones."""
    overhead: float
    """All the iterations' time over what it would have been untouched, minus one."""
    layers: tuple[LayerTime, ...]
    device_flops: float
    """A second, as a large matrix product reaches here."""
    device_bytes: float
    """A second, as a large copy reaches here: read and written."""
    peak_memory_bytes: int
    idle_causes_s: dict[str, float] = field(default_factory=dict)
    """Why the device was idle, by seconds of an iteration, before any scaling."""
    hidden_communication_s: float = 0.0
    """Communication of an iteration that ran beside computing and so cost nothing."""
    apart: tuple[LayerTime, ...] = ()
    """Where the step that runs cannot be looked into: the layers of the plain step, which add up to `apart_s`."""
    apart_s: float = 0.0
    conditions: dict[str, str] = field(default_factory=dict)
    kept: tuple[IterationTime, ...] = ()
    samples: tuple[LayerSample, ...] = ()
    trace: Trace = field(default_factory=Trace)
    """The last sampled iteration, interval by interval."""
