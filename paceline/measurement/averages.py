"""A robust average of a few noisy values."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

MIN_VALUES = 4


def interquartile_mean(values: Iterable[float]) -> float:
    """The mean of the middle half: as robust to outliers as the median, with less variance on few values."""
    ordered = sorted(values)
    if len(ordered) < MIN_VALUES:
        return median(ordered)
    left_out = len(ordered) // 4
    half = ordered[left_out : len(ordered) - left_out]
    return sum(half) / len(half)
