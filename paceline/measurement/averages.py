"""The average of a few unsteady values."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

FEW = 4


def middle(values: Iterable[float]) -> float:
    """The mean of the middle half: as little moved by outliers as a median, and steadier where there are few values."""
    ordered = sorted(values)
    if len(ordered) < FEW:
        return median(ordered)
    left_out = len(ordered) // 4
    half = ordered[left_out : len(ordered) - left_out]
    return sum(half) / len(half)
