"""Compute times for each device, batch size and precision: interpolated first, predicted where needed.

A prediction takes a fraction of a second, and a catalogue needs hundreds of them. So every device is predicted at two
batch sizes, and one reference device of each kind in every precision at the larger one. The rest is estimated until a
search needs it:

    t(batch)     on a line through the two batch sizes
    t(precision) = t(float32) * (1 - a + a * peak(float32) / peak(precision)), with a from the reference device
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from paceline.cluster import Device
from paceline.cost.prediction import Prediction
from paceline.errors import PacelineError
from paceline.planning.candidate import Candidate
from paceline.planning.divisions import Divided, Divisions, Predict
from paceline.planning.estimate import Computing
from paceline.planning.machine_options import MachineOption
from paceline.workload import Workload

Key = tuple[Device, int, str]
"""Device, batch size and precision. Devices of one name may differ: a processor, and one of its cores."""

LOWER_BOUND = 0.82
"""A prediction is at least this share of an estimate."""
LARGEST_BATCH = 4
"""The second batch size, as a multiple of the workload's, if there are enough samples."""


@dataclass(frozen=True)
class ComputeEstimate:
    computing: Computing
    memory_bytes: int
    predicted: bool


class Forecast:
    def __init__(self, workload: Workload, predict: Predict) -> None:
        self.workload, self._predict = workload, predict
        self.predictions: dict[Key, Prediction] = {}
        self.failures: dict[Key, str] = {}
        """Why a prediction failed."""
        self._divisions = Divisions(workload, predict)
        self._divided: dict[tuple[Candidate, Device], Divided | str] = {}
        self._models: dict[str, Device] = {}
        """By kind, the reference device: the one that gains most from other precisions."""

    def begin(self, devices: Sequence[Device]) -> None:
        """Predicts every device at two batch sizes."""
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

    def divided(self, candidate: Candidate, place: MachineOption) -> Divided | str:
        """The prediction of a network that is divided among devices, or why there is none."""
        known = candidate, place.device
        if known not in self._divided:
            try:
                self._divided[known] = self._divisions.predict(candidate, place)
            except PacelineError as error:
                self._divided[known] = str(error)
        return self._divided[known]

    def estimate(self, device: Device, batch: int, precision: str) -> ComputeEstimate | None:
        """The prediction, or an estimate that a prediction is unlikely to fall below."""
        own = self.predictions.get((device, batch, precision))
        if own is not None:
            return ComputeEstimate(Computing.of(own), own.memory_bytes, True)
        first = self.predictions.get((device, self.workload.batch, self.workload.precision))
        if first is None:
            return None
        last = self._at_largest(device, first) or first
        along = (batch - first.batch) / max(1, last.batch - first.batch)
        time_s = first.iteration_s + along * (last.iteration_s - first.iteration_s)
        time_s = max(time_s, first.iteration_s * min(1.0, batch / first.batch))
        memory = max(first.memory_bytes / 2, first.memory_bytes + along * (last.memory_bytes - first.memory_bytes))
        faster, smaller = self._in_precision(device, last.batch, precision)
        return ComputeEstimate(
            Computing.of(first, LOWER_BOUND * faster * time_s / first.iteration_s),
            round(memory * smaller),
            False,
        )

    def _at_largest(self, device: Device, first: Prediction) -> Prediction | None:
        batch = min(LARGEST_BATCH * self.workload.batch, first.samples or self.workload.batch)
        return self.predict(device, batch, self.workload.precision)

    def _in_precision(self, device: Device, batch: int, precision: str) -> tuple[float, float]:
        """Factors of time and memory from the workload's precision to another, at the largest batch size."""
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
    """The speedup by the device's data sheet."""
    slow, fast = device.peak_of(before), device.peak_of(after)
    return max(1.0, fast / slow) if slow and fast else 1.0


def _formats(device: Device) -> tuple[int, float]:
    """The number of reduced precisions a device supports, and the largest speedup from them."""
    gains = [_gain(device, "float32", other) for other in ("tf32", "bfloat16") if device.peak_of(other) is not None]
    return len(gains), max(gains, default=1.0)
