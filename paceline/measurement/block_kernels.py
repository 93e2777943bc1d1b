"""Evaluates the kernels of a traced block: span keys, busy time by key, and a trace of one iteration."""

from __future__ import annotations

from itertools import groupby, pairwise

from paceline.measurement.kernel_order import KernelOrder
from paceline.measurement.kernels import Kernel, exposed_s
from paceline.measurement.mark_log import MarkLog, SpanKey
from paceline.trace import Span, Trace

KernelKeys = list[tuple[int, SpanKey]]
"""For every kernel, its iteration (or window of iterations) and its span key."""


def reliable_keys(
    kernels: list[Kernel], by_launch: KernelKeys, order: KernelOrder | None, windows: tuple[int, int] | None = None
) -> tuple[KernelKeys, set[int]]:
    """Span keys by the known order, and the iterations for which they are reliable: those whose kernels matched it.

    With `windows` (iterations, iterations per window) the kernels were captured, and the keys are those of windows.
    """
    keys = list(by_launch)
    matching: set[int] = set()
    if order is None:
        return keys, matching
    if windows is not None:
        found = order.assign_captured(kernels, [key for _, key in by_launch], windows[0])
        keys = [(number // windows[1], key) for number, key in found]
        return keys, {number for number, _ in keys}
    for number, indices in groupby(range(len(kernels)), key=lambda index: by_launch[index][0]):
        mine = list(indices)
        known = order.assign([kernels[index] for index in mine])
        if known is not None:
            matching.add(number)
            keys[mine[0] : mine[-1] + 1] = [(number, key) for key in known]
    return keys, matching


def busy_s(kernels: list[Kernel], keys: KernelKeys) -> tuple[dict[int, dict[SpanKey, float]], float]:
    """Seconds by iteration and span key, and the communication that was hidden behind computing."""
    busy: dict[int, dict[SpanKey, float]] = {}
    hidden_s = 0.0
    for kernel, (number, key), seconds in zip(kernels, keys, exposed_s(kernels), strict=True):
        spans_s = busy.setdefault(number, {})
        spans_s[key] = spans_s.get(key, 0.0) + seconds
        if kernel.communicates:
            hidden_s += (kernel.end - kernel.start) * 1e-9 - seconds
    return busy, hidden_s


def loading_in(logs: list[MarkLog]) -> list[tuple[int, int]]:
    """When the host waited for data."""
    return [
        (start, end)
        for log in logs
        for (_, (part, _), _, start), (_, _, end, _) in pairwise(log.marks)
        if part == "load"
    ]


def iteration_trace(log: MarkLog, kernels: list[Kernel], keys: KernelKeys, device: str) -> Trace:
    """The last traced iteration: the host's spans and the kernels it launched."""
    origin = log.marks[0][3]
    on_device = [
        Span(device, part, (k.start - origin) * 1e-9, (k.end - origin) * 1e-9, k.name[:120], row)
        for k, (_, (part, row)) in zip(kernels, keys, strict=True)
        if k.launched >= origin
    ]
    return Trace((*log.spans("host", {}), *on_device))
