"""How long a device was idle and why, from the gaps between its kernels."""

from __future__ import annotations

from bisect import bisect_right
from statistics import median

from paceline.measurement.kernels import Kernel
from paceline.measurement.tape import Owner


def idle_s(
    kernels: list[Kernel], numbers: list[int], loading: list[tuple[int, int]], launch_cost_s: float
) -> dict[int, dict[Owner, float]]:
    """Idle seconds by iteration and cause: a gap belongs to the iteration of the kernel that ends it.

    Being traced makes every launch `launch_cost_s` slower. So the kernels are put on the device once more as
    they would have come without: each launch earlier by what those before it cost, each kernel no sooner than
    the device is ready after the one before it.
    """
    found: dict[int, dict[Owner, float]] = {}
    order = sorted(range(len(kernels)), key=lambda n: kernels[n].start)
    ranks = _ranks(kernels)
    way, own = _on_the_way([kernels[n] for n in order])
    end = retimed_end = 0
    for place, number in enumerate(order):
        kernel = kernels[number]
        if place:
            cause, gap = "between kernels", max(0, kernel.start - end)
            if kernel.launched + way >= end:  # the device was waiting for it
                launched = kernel.launched - round(launch_cost_s * 1e9 * ranks[number])
                late = launched + (kernel.start - kernel.launched) - retimed_end
                gap = max(min(own, gap), late)
                cause = _cause(kernel, end, loading) if gap > own else cause
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


def _on_the_way(kernels: list[Kernel]) -> tuple[int, int]:
    """How long a launch takes to reach an idle device, and how long a device needs between two kernels that are there.

    A kernel that is launched shortly before the device has nothing left to do still comes too late for it.
    """
    ways, gaps = [], []
    end = 0
    for kernel in kernels:
        if end and kernel.launched >= end:
            ways.append(kernel.start - kernel.launched)
        end = max(end, kernel.end)
    way = round(median(ways)) if ways else 0
    end = 0
    for kernel in kernels:
        if end and kernel.launched + way < end:
            gaps.append(max(0, kernel.start - end))
        end = max(end, kernel.end)
    return way, round(median(gaps)) if gaps else 0


def _ranks(kernels: list[Kernel]) -> list[int]:
    """How many launches came before each kernel's own; a graph is one launch."""
    distinct = sorted({kernel.launched for kernel in kernels})
    return [bisect_right(distinct, kernel.launched) - 1 for kernel in kernels]


def _cause(kernel: Kernel, idle_since: int, loading: list[tuple[int, int]]) -> str:
    """Why a kernel was not launched before the device had nothing left to do."""
    place = bisect_right(loading, (kernel.launched, kernel.launched)) - 1
    if place >= 0 and loading[place][1] > idle_since and loading[place][1] <= kernel.launched:
        waited = loading[place][1] - max(loading[place][0], idle_since)
        if 2 * waited > kernel.launched - idle_since:
            return "waiting for data"
    return "host launching"
