"""What computing takes on each device, at each batch and precision: predicted when it matters, guessed before.

A prediction takes a fraction of a second, and a catalogue has hundreds of them. So every device is predicted at two
batches, one device of a kind in every precision at the larger of them, where that gains most, and the rest is guessed
until a search wants to know:

    t(batch)     on a line through the two batches
    t(precision) = t(float32) * (1 - a + a * peak(float32) / peak(precision)), a as the kind's model device has it
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from paceline.cluster import Device
from paceline.cost.prediction import Prediction
from paceline.errors import PacelineError
from paceline.planning.estimate import Computing
from paceline.workload import Workload

Predict = Callable[[Workload, Device], Prediction]

Key = tuple[Device, int, str]
"""With a batch and a precision. Devices of one name may differ: a processor, and one of its cores."""

LEAST = 0.82
"""Of what is guessed, what a prediction could come to at the least."""
LARGEST_BATCH = 4
"""Times the workload's, where the second batch is if there are so many samples."""


@dataclass(frozen=True)
class Guess:
    computing: Computing
    memory_bytes: int
    predicted: bool


class Forecast:
    def __init__(self, workload: Workload, predict: Predict) -> None:
        self.workload, self._predict = workload, predict
        self.predictions: dict[Key, Prediction] = {}
        self.failures: dict[Key, str] = {}
        """Why it cannot be predicted."""
        self._models: dict[str, Device] = {}
        """Of each kind, the device with most to gain from other precisions: the others are guessed after it."""

    def begin(self, devices: Sequence[Device]) -> None:
        """Every device at two batches."""
        for device in devices:
            first = self.predict(device, self.workload.batch, self.workload.precision)
            if first is None:
                continue
            self._at_largest(device, first)
            model = self._models.get(device.kind)
            if model is None or _formats(device) > _formats(model):
                self._models[device.kind] = device

    def predict(self, device: Device, batch: int, precision: str) -> Prediction | None:
        """None if it cannot be predicted; `failures` says why."""
        key = (device, batch, precision)
        if key not in self.predictions and key not in self.failures:
            try:
                workload = replace(self.workload, batch=batch, precision=precision)
                self.predictions[key] = self._predict(workload, device)
            except PacelineError as error:
                self.failures[key] = str(error)
        return self.predictions.get(key)

    def guess(self, device: Device, batch: int, precision: str) -> Guess | None:
        """As predicted; or a guess that a prediction will hardly be below."""
        own = self.predictions.get((device, batch, precision))
        if own is not None:
            return Guess(Computing.of(own), own.memory_bytes, True)
        first = self.predictions.get((device, self.workload.batch, self.workload.precision))
        if first is None:
            return None
        last = self._at_largest(device, first) or first
        along = (batch - first.batch) / max(1, last.batch - first.batch)
        time_s = first.iteration_s + along * (last.iteration_s - first.iteration_s)
        time_s = max(time_s, first.iteration_s * min(1.0, batch / first.batch))
        memory = max(first.memory_bytes / 2, first.memory_bytes + along * (last.memory_bytes - first.memory_bytes))
        faster, smaller = self._in_precision(device, last.batch, precision)
        return Guess(Computing.of(first, LEAST * faster * time_s / first.iteration_s), round(memory * smaller), False)

    def _at_largest(self, device: Device, first: Prediction) -> Prediction | None:
        batch = min(LARGEST_BATCH * self.workload.batch, first.samples or self.workload.batch)
        return self.predict(device, batch, self.workload.precision)

    def _in_precision(self, device: Device, batch: int, precision: str) -> tuple[float, float]:
        """By what time and memory change from the workload's precision to another; most at the largest batch."""
        usual = self.workload.precision
        if precision == usual:
            return 1.0, 1.0
        model = self._models[device.kind]
        before, after = (self.predict(model, batch, each) for each in (usual, precision))
        gain, own_gain = (_gain(each, usual, precision) for each in (model, device))
        if before is None or after is None:
            return 1 / own_gain, 1.0
        memory = after.memory_bytes / max(1, before.memory_bytes)
        time = after.iteration_s / before.iteration_s
        share = min(1.0, max(0.0, (1 - time) / (1 - 1 / gain))) if gain > 1 else 0.0
        return 1 - share + share / own_gain, memory


def _gain(device: Device, before: str, after: str) -> float:
    """How many times as fast it is by its data sheet."""
    slow, fast = device.peak_of(before), device.peak_of(after)
    return max(1.0, fast / slow) if slow and fast else 1.0


def _formats(device: Device) -> tuple[int, float]:
    """How many precisions it knows, and how much faster they make it."""
    gains = [_gain(device, "float32", other) for other in ("tf32", "bfloat16") if device.peak_of(other) is not None]
    return len(gains), max(gains, default=1.0)
