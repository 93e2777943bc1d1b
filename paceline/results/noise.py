"""Whether two settings differ by more than their repetitions do."""

from __future__ import annotations

import math
from collections.abc import Iterable

LEAST_GAIN = 0.05
"""Times that differ by less than this share are not called different, however often they were measured."""


def differs(first: Iterable[float], second: Iterable[float]) -> bool | None:
    """True if the ranges of the repetitions do not overlap; None if a setting has a single run, so noise is unknown.

    With three repetitions each, the ranges of equal settings are disjoint in 10 % of cases. With two it would be 33 %,
    so the gap must also exceed the wider range, which happens in 9 %.
    """
    a, b = ([value for value in values if math.isfinite(value)] for values in (first, second))
    if len(a) < 2 or len(b) < 2:
        return None
    gap, widest = max(min(a) - max(b), min(b) - max(a)), max(max(a) - min(a), max(b) - min(b))
    return gap > (widest if min(len(a), len(b)) == 2 else 0.0)


def unrepeated(first: Iterable[float], second: Iterable[float]) -> str:
    """What to add to a comparison whose noise is unknown; empty if both settings were repeated."""
    many = [sum(map(math.isfinite, values)) for values in (first, second)]
    if min(many) > 1:
        return ""
    return " (one run each)" if max(many) <= 1 else " (too few runs to judge the noise)"
