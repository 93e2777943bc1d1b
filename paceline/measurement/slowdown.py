"""How much longer the host takes for an iteration while it is traced: its time for such a one beside that for others.

It is a calibration and no remainder. What comes out is one ratio for a run; it says how much earlier each launch would
have come, and the gaps between the kernels are worked out anew from that. It is read off the host's clock alone, the
device is not asked; and a block is never corrected by its own comparison. Kernels that were missed or counted twice, or
take longer when traced, and a device that idles for another reason are therefore not made up for: the parts of a block
then do not add up to the untouched iterations beside it, and `accounted` shows it. What it does take out, and should,
is that a traced host is slower than an untraced one.
"""

from __future__ import annotations

from dataclasses import dataclass

from paceline.measurement.averages import middle


@dataclass(frozen=True)
class Comparison:
    """Host seconds an iteration, traced and not, close to each other in time."""

    traced_s: float
    alone_s: float


def slowdown(comparisons: list[Comparison]) -> float:
    """Of ratios: an unsteady host that is slower for a while is so with tracing and without."""
    return max(1.0, middle(c.traced_s / c.alone_s for c in comparisons)) if comparisons else 1.0
