"""Reasons to distrust a measurement, said in the result: nothing is printed as if it were certain when it is not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import TYPE_CHECKING

from paceline.formatting import duration, percent

if TYPE_CHECKING:
    from paceline.measurement.measurement import LayerTime
    from paceline.measurement.session import Session

MAX_DISAGREEMENT = 0.05
FEW_SAMPLES = 10
MAX_KERNEL_DISAGREEMENT = 0.1
"""Between a trace's kernels and the same kernels timed by events; clocks and gaps between kernels differ by less."""
GAP_S = 1e-6
NEGATIVE_SHARE = 1e-3
"""A negative time below this share of an iteration is noise of the marks' cost."""


def measurement_warnings(
    accounted: float, sampled: int, iteration_s: float, parts_s: dict[str, float], layers: Sequence[LayerTime],
    busy: str,
) -> Iterator[str]:  # fmt: skip
    if abs(accounted - 1.0) > MAX_DISAGREEMENT:
        yield (
            f"the parts add up to {percent(accounted)} of an unsampled iteration: sampled iterations differ from the "
            "others, measure longer or on a quiet machine"
        )
    if sampled < FEW_SAMPLES:
        yield f"only {sampled} iterations were sampled: measure longer, at least {FEW_SAMPLES} are needed for a mean"
    rows = {part: seconds for part, seconds in parts_s.items() if part != "unattributed"}
    for layer in layers:
        rows |= {f"{layer.name} forward": layer.forward_s.mean_s, f"{layer.name} backward": layer.backward_s.mean_s}
    negative = [name for name, seconds in rows.items() if seconds < -NEGATIVE_SHARE * iteration_s]
    if negative:
        least = min(negative, key=lambda name: rows[name])
        yield (
            f"{least} has a negative time ({duration(rows[least])}), {len(negative)} in all: marks cost less than was "
            "measured at the start"
        )
    if busy:
        yield busy


def trace_warnings(session: Session) -> Iterator[str]:
    """Whether the kernels of the traces take as long as events say that they do, where that is known.

    Between two kernels that run one after another there is a gap of about a microsecond.
    """
    if not session.kernels_alone_s or not session.kernels_traced_s:
        return
    alone_s, traced_s = min(session.kernels_alone_s), median(session.kernels_traced_s)
    least_s = (1.0 - MAX_KERNEL_DISAGREEMENT) * alone_s - session.launches * GAP_S
    if not least_s <= traced_s <= (1.0 + MAX_KERNEL_DISAGREEMENT) * alone_s:
        yield (
            f"traces and events disagree: an iteration's kernels take {duration(traced_s)} in traces and "
            f"{duration(alone_s)} one after another; kernels were lost, counted twice or slowed down by tracing"
        )
