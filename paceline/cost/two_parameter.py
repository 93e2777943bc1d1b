"""A model of training time with two parameters, fitted to batch sizes on two GPUs in a study of 2017:

    T = (V_tr / S_b) * t_g + (V_tr / N + V_te) * t_s

with V_tr training and V_te test samples, batch size S_b, and N devices (two in the study). t_g is the cost per batch:
gathering gradients and sending parameters; t_s is the cost per sample. The first term is the communication.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.errors import InputError


@dataclass(frozen=True)
class SampleCounts:
    """The number of samples and devices."""

    train: int = 50_000
    test: int = 10_000
    devices: int = 2

    def __post_init__(self) -> None:
        for key, least in (("train", 1), ("test", 0), ("devices", 1)):
            value = getattr(self, key)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InputError(f"{key}={value!r} should be a whole number of at least {least}")

    def batches(self, batch: float) -> float:
        """V_tr / S_b."""
        if not (math.isfinite(batch) and batch > 0):
            raise InputError(f"batch={batch:g} should be above 0")
        return self.train / batch

    @property
    def each(self) -> float:
        """V_tr / N + V_te: samples per device."""
        return self.train / self.devices + self.test


@dataclass(frozen=True)
class TwoParameters:
    batch_s: float
    """t_g."""
    sample_s: float
    """t_s."""
    samples: SampleCounts = SampleCounts()

    def __post_init__(self) -> None:
        for key in ("batch_s", "sample_s"):
            value = getattr(self, key)
            if not (math.isfinite(value) and value >= 0):
                raise InputError(f"{key}={value:g} should be at least 0")

    def time_s(self, batch: float) -> float:
        return self.communication_s(batch) + self.samples.each * self.sample_s

    def communication_s(self, batch: float) -> float:
        return self.samples.batches(batch) * self.batch_s

    def communication_share(self, batch: float) -> float:
        """Share of the total time; 0 if that is 0."""
        return self.communication_s(batch) / self.time_s(batch) if self.time_s(batch) else 0.0


Observation = tuple[float, float]
"""A batch size and the seconds that training took."""


def solve(first: Observation, second: Observation, samples: SampleCounts | None = None) -> TwoParameters:
    """The two parameters that two observations determine exactly."""
    samples = samples or SampleCounts()
    _check((first, second))
    (batch_a, seconds_a), (batch_b, seconds_b) = first, second
    if batch_a == batch_b:
        raise InputError(f"two observations with batch={batch_a:g} determine one parameter; use two batch sizes")
    batch_s = (seconds_a - seconds_b) / (samples.batches(batch_a) - samples.batches(batch_b))
    sample_s = (seconds_a - samples.batches(batch_a) * batch_s) / samples.each
    if batch_s < 0:
        raise InputError(
            f"batch={max(batch_a, batch_b):g} takes longer than the smaller batch: the model does not apply"
        )
    if sample_s < 0:
        raise InputError(
            "the time falls faster than the number of batches: the fitted time per sample would be negative"
        )
    return TwoParameters(batch_s, sample_s, samples)


def fit(observations: Sequence[Observation], samples: SampleCounts | None = None) -> TwoParameters:
    """A least-squares fit to many observations, with neither parameter below 0."""
    samples = samples or SampleCounts()
    _check(observations)
    if len({batch for batch, _ in observations}) < 2:
        raise InputError("a fit needs observations with at least two batch sizes")
    x = [samples.batches(batch) for batch, _ in observations]
    y = [seconds for _, seconds in observations]
    mean_x, mean_y = math.fsum(x) / len(x), math.fsum(y) / len(y)
    slope = math.fsum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    slope /= math.fsum((a - mean_x) ** 2 for a in x)
    level = mean_y - slope * mean_x
    if slope < 0:
        slope, level = 0.0, mean_y
    elif level < 0:
        slope = math.fsum(a * b for a, b in zip(x, y, strict=True)) / math.fsum(a * a for a in x)
        level = 0.0
    return TwoParameters(slope, level / samples.each, samples)


def _check(observations: Sequence[Observation]) -> None:
    for batch, seconds in observations:
        if not (math.isfinite(batch) and batch > 0 and math.isfinite(seconds) and seconds > 0):
            raise InputError(f"batch={batch:g} with {seconds:g} s: both should be above 0")


@dataclass(frozen=True)
class PrintedResults:
    """The figures printed in the study, rounded as printed."""

    network: str
    batch_s: float
    sample_s: float
    observed_s: dict[int, float]
    predicted_s: dict[int, float]
    communication_share: dict[int, float]


PUBLISHED = {
    "mlp": PrintedResults(
        "mlp", 0.114, 0.00015,
        observed_s={100: 62.0, 2000: 8.0},
        predicted_s={500: 16.56, 1000: 10.86},
        communication_share={100: 0.927, 2000: 0.356},
    ),
    "lstm": PrintedResults("lstm", 0.61, 0.0027, observed_s={}, predicted_s={}, communication_share={2000: 0.139}),
}  # fmt: skip
