"""How much tracing slows down the host: its time per iteration with tracing divided by that without.

The result is one ratio per run. It says how much earlier each launch would have come without tracing, and the gaps
between kernels are recomputed from that. It is a calibration, not a residual: only the host's clock enters, and a block
is never corrected by its own comparison. Missing or double-counted kernels, kernels that take longer when traced, and
devices that idle for another reason are therefore not hidden: the parts of the block then do not add up to its
untouched neighbours, and `accounted` shows it.
"""

from __future__ import annotations

from dataclasses import dataclass

from paceline.measurement.averages import interquartile_mean


@dataclass(frozen=True)
class HostTimes:
    """Host seconds per iteration with and without tracing, close to each other in time."""

    traced_s: float
    untraced_s: float


def slowdown(comparisons: list[HostTimes]) -> float:
    """Averages ratios, because a host that is slow for a while is slow with and without tracing."""
    return max(1.0, interquartile_mean(c.traced_s / c.untraced_s for c in comparisons)) if comparisons else 1.0
