"""The times of a whole network that a cost model is fitted to or compared with: fewer than a measurement has."""

from __future__ import annotations

from dataclasses import dataclass, field

from paceline.measurement.mark_log import SCORE
from paceline.measurement.measurement import Measurement
from paceline.workload import Workload


@dataclass(frozen=True)
class NetworkTimes:
    """Seconds of one network at one batch size, run by one kind of step."""

    name: str
    batch: int
    step: str
    precision: str
    data: str
    optimizer: str
    iteration_s: float
    layers: dict[str, tuple[float, float]]
    """Forward and backward time by layer; on a GPU the time of its kernels."""
    parts_s: dict[str, float]
    """`load`, `update`, `idle` and `loop`, where known."""
    score_s: float = 0.0
    host_s: float = 0.0
    """Time of the host to launch an iteration that is not captured, on a GPU."""
    drift: dict[str, float] = field(default_factory=dict)
    """Slowdown of the machine by probe, where known."""
    memory_format: str = "contiguous"

    @property
    def workload(self) -> Workload:
        return Workload(
            self.name, self.data, batch=self.batch, optimizer=self.optimizer, precision=self.precision,
            memory_format=self.memory_format,
        )  # fmt: skip


def times_of(measurement: Measurement) -> NetworkTimes:
    """The times of a measured network."""
    layers = {
        layer.name: (max(0.0, layer.forward_s.median_s), max(0.0, layer.backward_s.median_s))
        for layer in measurement.layers
    }
    score_s, _ = layers.pop(SCORE, (0.0, 0.0))
    conditions = measurement.conditions
    return NetworkTimes(
        measurement.name, measurement.batch, measurement.step, conditions.get("precision", "float32"),
        conditions.get("data", ""), conditions.get("optimizer", "sgd"), measurement.iteration_s.median_s, layers,
        {part: took for part, took in measurement.parts_s.items() if part != "unattributed" and took >= 0}, score_s,
    )  # fmt: skip
