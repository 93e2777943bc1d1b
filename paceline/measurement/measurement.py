"""The record of a measurement: the time of an untouched iteration, and the parts and layers it is made of."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from paceline import record
from paceline.measurement.measurement_text import text_of
from paceline.measurement.spread import Spread
from paceline.notebook import NotebookRecord
from paceline.record_fields import MEASURED, SIGNED
from paceline.trace import Trace

__all__ = ["IterationTime", "LayerSample", "LayerTime", "Measurement", "Spread"]


@dataclass(frozen=True)
class LayerTime:
    """One layer of the network. The means of all layers add up to the parts `forward`, `backward` and `update`."""

    name: str
    kind: str
    calls: int
    """Forward calls per iteration."""
    forward_s: Spread
    backward_s: Spread
    update_s: Spread
    update_apportioned: bool
    """Whether `update_s` is the layer's share by parameter bytes of an update that runs over all layers at once."""
    flops: float
    """FLOP of the forward passes of an iteration; backward passes take about twice as many."""
    bytes: int
    """Bytes read and written by the forward passes: inputs, outputs, parameters."""
    parameters: int
    activation_bytes: int
    gradient_bytes: int
    achieved_flops: float
    """FLOP/s over forward and backward together."""
    achieved_bytes: float

    @property
    def total_s(self) -> float:
        return self.forward_s.mean_s + self.backward_s.mean_s + self.update_s.mean_s


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
    """A layer's times in one sampled iteration."""

    number: int
    layer: str
    forward_s: float = field(metadata=MEASURED)
    backward_s: float = field(metadata=MEASURED)
    update_s: float = field(metadata=MEASURED)


@dataclass(frozen=True, repr=False)
class Measurement(NotebookRecord):
    """Where an iteration spends its time, part by part and layer by layer: the result of measuring."""

    name: str
    batch: int
    """Samples per iteration: with gradient accumulation, those of all its batches."""
    device: str
    device_name: str
    step: str
    iterations: int
    sampled: int
    iteration_s: Spread
    """Time of the untouched iterations."""
    parts_s: dict[str, float] = field(metadata=SIGNED)
    """Seconds by part: means over the sampled iterations, and as `unattributed` what is missing to the mean of the
    untouched iterations, which is negative if the parts are too long."""
    part_medians_s: dict[str, float] = field(metadata=MEASURED)
    """Medians over the sampled iterations; unlike means they need not add up."""
    accounted: float
    """Sum of the named parts, without `unattributed`, divided by the mean of the untouched iterations."""
    overhead: float
    """What measuring added to this run, prelude included, divided by what the run would have taken without it."""
    overhead_hour: float
    """The same of a run of one hour."""
    overhead_s: float = field(metadata=SIGNED)
    """Seconds that measuring added to this run."""
    layers: tuple[LayerTime, ...]
    device_flops: float
    """FLOP/s that a large matrix product reaches on the device."""
    device_bytes: float
    """Bytes/s, read plus written, that a large copy reaches on the device."""
    peak_memory_bytes: int
    idle_causes_s: dict[str, float] = field(default_factory=dict, metadata=MEASURED)
    """Idle seconds per iteration by cause."""
    hidden_communication_s: float = 0.0
    """Communication per iteration that overlapped with computing and so cost no time."""
    validation_s: float = 0.0
    """Evaluations inside the loop, in seconds per iteration; they are not part of the iteration."""
    epoch_start_s: float = 0.0
    """Mean time to start a loader and get its first batch; it is not part of an iteration."""
    eager_layers: tuple[LayerTime, ...] = ()
    """If the step runs as one compiled unit: the layers of the plain eager step, which add up to `eager_s`."""
    eager_s: float = 0.0
    warnings: tuple[str, ...] = ()
    """Reasons to distrust these figures, one sentence each."""
    conditions: dict[str, str] = field(default_factory=dict)
    kept: tuple[IterationTime, ...] = ()
    samples: tuple[LayerSample, ...] = ()
    trace: Trace = field(default_factory=Trace)
    """The last sampled iterations, one after another."""

    def facts(self) -> dict[str, Any]:
        return {
            "network": self.name, "batch": self.batch, "device": self.device_name, "step": self.step,
            "iteration_s": self.iteration_s.mean_s, "accounted": self.accounted, "overhead": self.overhead,
        }  # fmt: skip

    def table(self) -> list[dict[str, Any]]:
        """One row per layer, and one for each part without layers. Shares are of the mean iteration."""
        whole_s = self.iteration_s.mean_s or 1.0
        rows = [
            {
                "layer": layer.name, "kind": layer.kind, "forward_s": layer.forward_s.mean_s,
                "backward_s": layer.backward_s.mean_s, "update_s": layer.update_s.mean_s, "total_s": layer.total_s,
                "share": layer.total_s / whole_s, "parameters": layer.parameters,
            }
            for layer in self.layers
        ]  # fmt: skip
        return rows + [
            {
                "layer": f"({part})", "kind": "part", "forward_s": 0.0, "backward_s": 0.0, "update_s": 0.0,
                "total_s": seconds, "share": seconds / whole_s, "parameters": 0,
            }
            for part, seconds in self.parts_without_layers_s().items() if seconds
        ]  # fmt: skip

    def parts_without_layers_s(self) -> Mapping[str, float]:
        """Parts whose time no layer has; with the layers they add up to the iteration."""
        of_layers = {
            "forward": sum(layer.forward_s.mean_s for layer in self.layers),
            "backward": sum(layer.backward_s.mean_s for layer in self.layers),
            "update": sum(layer.update_s.mean_s for layer in self.layers),
        }
        left = {part: seconds - of_layers.get(part, 0.0) for part, seconds in self.parts_s.items()}
        return {part: seconds for part, seconds in left.items() if part not in of_layers or abs(seconds) > 1e-9}

    def save(self, path: str | Path) -> None:
        """Writes the record; `paceline.load` reads it again."""
        record.save(self, Path(path))

    def report(self, out: str | Path = "report.html") -> Path:
        """Writes a self-contained page about this measurement, and returns its path."""
        with TemporaryDirectory() as directory:
            self.save(Path(directory) / "measurement.json")
            page: Path = import_module("paceline").report(directory, out)  # by name: pages are made above this room
        return page

    def __str__(self) -> str:
        return text_of(self)
