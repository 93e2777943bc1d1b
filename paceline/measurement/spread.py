"""A distribution of seconds in four numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, median, quantiles

from paceline.record_fields import MEASURED


@dataclass(frozen=True)
class Spread:
    """Median, 10th and 90th percentile, and the mean. Means add up: layers to parts, parts to the iteration."""

    median_s: float = field(metadata=MEASURED)
    p10_s: float = field(metadata=MEASURED)
    p90_s: float = field(metadata=MEASURED)
    mean_s: float = field(metadata=MEASURED)

    def times(self, share: float) -> Spread:
        return Spread(share * self.median_s, share * self.p10_s, share * self.p90_s, share * self.mean_s)


def spread_of(values: Sequence[float], mean_s: float | None = None, weights: Sequence[float] | None = None) -> Spread:
    """The spread of some values; `mean_s` is given where more values than these are known to have it."""
    if not values:
        return Spread(0.0, 0.0, 0.0, 0.0)
    tenths = quantiles(values, n=10, method="inclusive") if len(values) > 1 else values
    return Spread(median(values), tenths[0], tenths[-1], fmean(values, weights) if mean_s is None else mean_s)
