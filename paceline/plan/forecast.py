"""What computing takes on each device, at each batch and precision: predicted when it matters, guessed before.

A prediction takes a fraction of a second, and a catalogue has hundreds of them. So every device is predicted once, one
device of a kind at every batch and precision, and the others are guessed to change alike until a search wants to know.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from paceline.cluster import Device
from paceline.cost.prediction import Prediction
from paceline.errors import PacelineError
from paceline.plan.estimate import Computing
from paceline.workload import Workload

Predict = Callable[[Workload, Device], Prediction]

Key = tuple[str, int, str]
"""A device's name, a batch and a precision."""

LEAST = 0.7
"""Of what is guessed, what a prediction could come to at the least."""


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
        self._models: dict[str, tuple[Device, Prediction]] = {}
        """Of each kind, the device that the others are guessed after."""

    def begin(self, devices: Sequence[Device]) -> None:
        """Every device once; of each kind the one that knows most precisions is the model of the others."""
        for device in devices:
            found = self.predict(device, self.workload.batch, self.workload.precision)
            if found is None:
                continue
            model = self._models.get(device.kind)
            if model is None or _formats(device) > _formats(model[0]):
                self._models[device.kind] = device, found

    def predict(self, device: Device, batch: int, precision: str) -> Prediction | None:
        """None if it cannot be predicted; `failures` says why."""
        key = (device.name, batch, precision)
        if key not in self.predictions and key not in self.failures:
            try:
                workload = replace(self.workload, batch=batch, precision=precision)
                self.predictions[key] = self._predict(workload, device)
            except PacelineError as error:
                self.failures[key] = str(error)
        return self.predictions.get(key)

    def guess(self, device: Device, batch: int, precision: str) -> Guess | None:
        """As predicted; or at the least, as the kind's model changes from the workload's batch and precision."""
        own = self.predictions.get((device.name, batch, precision))
        if own is not None:
            return Guess(Computing.of(own), own.memory_bytes, True)
        base = self.predictions.get((device.name, self.workload.batch, self.workload.precision))
        if base is None:
            return None
        model, model_base = self._models[device.kind]
        changed = self.predict(model, batch, precision)
        if changed is None:
            return Guess(Computing.of(base, LEAST * batch / base.batch), base.memory_bytes, False)
        time = LEAST * changed.iteration_s / model_base.iteration_s
        memory = changed.memory_bytes / max(1, model_base.memory_bytes)
        return Guess(Computing.of(base, time), round(base.memory_bytes * memory), False)


def _formats(device: Device) -> int:
    return sum(device.peak_of(precision) is not None for precision in ("float32", "tf32", "bfloat16"))
