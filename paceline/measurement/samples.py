"""Samples of instrumented iterations, and what their marks cost in place.

Windows alternate: some have marks at every layer, the others only between the parts of an iteration. Marks at layers
run Python between the operations, which costs more among kernels that fill the caches than when it is timed alone. By
how much shows in the parts: the time of forward and backward passes with marks at every layer, beyond that of the same
passes without them, is what those marks cost beyond what was known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from paceline.measurement.averages import interquartile_mean
from paceline.measurement.mark_log import SpanKey

MAX_FACTOR = 10.0
"""A mark costs between what it costs alone and so many times that; what differs by more has another reason."""
MAX_SHARE = 0.5
"""Of a layer's time that marks can have added: an operation that takes no time is not slowed down either."""
ENOUGH = 5
"""Samples of either kind for a comparison."""
LAYERED = ("forward", "backward")
"""The parts that layers add up to."""


@dataclass(frozen=True)
class Sample:
    """One instrumented iteration."""

    number: int
    spans_s: dict[SpanKey, float]
    wall_s: float
    weight: float = 1.0
    """Iterations it stands for: sampling is denser at the beginning of a run, and machines drift."""
    marks_s: dict[SpanKey, float] = field(default_factory=dict)
    """What was subtracted from each span for the marks around it."""

    def part_s(self, part: str) -> float:
        return sum(seconds for (of, _), seconds in self.spans_s.items() if of == part)

    def part_marks_s(self, part: str) -> float:
        return sum(seconds for (of, _), seconds in self.marks_s.items() if of == part)


def mark_factors(samples: Sequence[Sample], coarse: Sequence[Sample]) -> dict[SpanKey, float]:
    """How many times what it costs alone a mark costs in place, for each layer's forward and backward pass."""
    if min(len(samples), len(coarse)) < ENOUGH:
        return {}
    found = {}
    for part in LAYERED:
        keys = {key for sample in samples for key in sample.marks_s if key[0] == part}
        known_s = {key: fmean(sample.marks_s.get(key, 0.0) for sample in samples) for key in keys}
        took_s = {key: fmean(sample.spans_s.get(key, 0.0) for sample in samples) for key in keys}
        found.update(_factors(known_s, took_s, _typical_s(samples, part) - _typical_s(coarse, part)))
    return found


def _typical_s(samples: Sequence[Sample], part: str) -> float:
    return interquartile_mean(sample.part_s(part) for sample in samples)


def _factors(known_s: dict[SpanKey, float], took_s: dict[SpanKey, float], extra_s: float) -> dict[SpanKey, float]:
    """Divides `extra_s` among layers by what their marks are known to cost, up to a share of what each took."""
    limits = {key: min(MAX_FACTOR - 1.0, MAX_SHARE * took_s[key] / cost) for key, cost in known_s.items() if cost > 0.0}
    left_s, factors = extra_s, {}
    left_known_s = sum(known_s[key] for key in limits)
    for key in sorted(limits, key=limits.__getitem__):  # those with the lowest limits leave the rest to the others
        beyond = max(0.0, min(limits[key], left_s / left_known_s))
        factors[key] = 1.0 + beyond
        left_s -= beyond * known_s[key]
        left_known_s -= known_s[key]
    return factors


def without_marks(sample: Sample, factors: dict[SpanKey, float]) -> Sample:
    """The sample with as much subtracted from its spans as their marks cost in place."""
    spans_s = {
        key: seconds - (factors.get(key, 1.0) - 1.0) * sample.marks_s.get(key, 0.0)
        for key, seconds in sample.spans_s.items()
    }
    return replace(sample, spans_s=spans_s)
