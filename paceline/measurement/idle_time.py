"""How long a device was idle and why, from the gaps between its kernels."""

from __future__ import annotations

from bisect import bisect_right
from statistics import median

from paceline.measurement.kernels import Kernel
from paceline.measurement.mark_log import SpanKey


def idle_s(
    kernels: list[Kernel], numbers: list[int], loading: list[tuple[int, int]], launch_cost_s: float
) -> dict[int, dict[SpanKey, float]]:
    """Idle seconds by iteration and cause. A gap belongs to the iteration of the kernel that ends it.

    Tracing makes every launch `launch_cost_s` slower. The timeline is therefore replayed without that cost: each
    launch is moved earlier by the cost of the launches before it, and each kernel starts no sooner than the device
    is free.
    """
    found: dict[int, dict[SpanKey, float]] = {}
    order = sorted(range(len(kernels)), key=lambda n: kernels[n].start)
    ranks = _ranks(kernels)
    latency, queued_gap = _launch_latency([kernels[n] for n in order])
    end = retimed_end = 0
    for place, number in enumerate(order):
        kernel = kernels[number]
        if place:
            cause, gap = "between kernels", max(0, kernel.start - end)
            if kernel.launched + latency >= end:  # the device was waiting for it
                launched = kernel.launched - round(launch_cost_s * 1e9 * ranks[number])
                late = launched + (kernel.start - kernel.launched) - retimed_end
                gap = max(min(queued_gap, gap), late)
                cause = _cause(kernel, end, loading) if gap > queued_gap else cause
            elif "Memcpy" in kernel.name:
                cause = "copying"
            if gap:
                causes = found.setdefault(numbers[number], {})
                causes["idle", cause] = causes.get(("idle", cause), 0.0) + gap * 1e-9
            retimed_end += gap
        else:
            retimed_end = kernel.start
        retimed_end += max(0, kernel.end - max(kernel.start, end))
        end = max(end, kernel.end)
    return found


def _launch_latency(kernels: list[Kernel]) -> tuple[int, int]:
    """The latency of a launch to an idle device, and the gap between two kernels that are already queued.

    A kernel launched less than the latency before the device runs dry still arrives late.
    """
    latencies, gaps = [], []
    end = 0
    for kernel in kernels:
        if end and kernel.launched >= end:
            latencies.append(kernel.start - kernel.launched)
        end = max(end, kernel.end)
    latency = round(median(latencies)) if latencies else 0
    end = 0
    for kernel in kernels:
        if end and kernel.launched + latency < end:
            gaps.append(max(0, kernel.start - end))
        end = max(end, kernel.end)
    return latency, round(median(gaps)) if gaps else 0


def _ranks(kernels: list[Kernel]) -> list[int]:
    """The number of launches before each kernel's queued_gap; a graph is one launch."""
    distinct = sorted({kernel.launched for kernel in kernels})
    return [bisect_right(distinct, kernel.launched) - 1 for kernel in kernels]


def _cause(kernel: Kernel, idle_since: int, loading: list[tuple[int, int]]) -> str:
    """Why a kernel was not launched before the device ran dry."""
    place = bisect_right(loading, (kernel.launched, kernel.launched)) - 1
    if place >= 0 and loading[place][1] > idle_since and loading[place][1] <= kernel.launched:
        waited = loading[place][1] - max(loading[place][0], idle_since)
        if 2 * waited > kernel.launched - idle_since:
            return "waiting for data"
    return "host launching"
