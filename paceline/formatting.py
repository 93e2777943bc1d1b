"""Formats numbers for people: one style for percentages on the command line, in advice and on pages."""

from __future__ import annotations

import math

UNKNOWN = "–"


def percent(share: float, digits: int = 1) -> str:
    """0.1234 is "12.3 %"."""
    return f"{100 * share:.{digits}f} %" if math.isfinite(share) else UNKNOWN
