"""The kernels a GPU ran during a block of iterations: when each was launched, started and ended.

Tracing slows down the host but not the kernels, so a layer's time on a GPU is the time of its kernels. A kernel is
attributed by the time of its launch on the host's clock.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from paceline.measurement.mark_log import MarkLog, SpanKey


class Kernel(NamedTuple):
    """One kernel or copy on the device; times are in nanoseconds on the host's `perf_counter`."""

    name: str
    launched: int
    start: int
    end: int

    @property
    def copies(self) -> bool:
        return "Memcpy HtoD" in self.name

    @property
    def communicates(self) -> bool:
        return "nccl" in self.name.lower()


def keys_by_launch(kernels: list[Kernel], logs: list[MarkLog]) -> list[tuple[int, SpanKey]]:
    """For every kernel, its iteration (index of the log) and the span key during which it was launched."""
    starts = [log.marks[0][2] for log in logs]
    moments = [[mark[3] for mark in log.marks] for log in logs]
    found = []
    for kernel in kernels:
        number = max(0, bisect_right(starts, kernel.launched) - 1)
        place = max(0, bisect_right(moments[number], kernel.launched) - 1)
        found.append((number, key_of_kernel(kernel, logs[number].marks[place][1])))
    return found


def key_of_kernel(kernel: Kernel, otherwise: SpanKey) -> SpanKey:
    """Copies and communication have keys of their own, whichever module launched them."""
    if kernel.copies:
        return "copy", ""
    return ("communicate", "") if kernel.communicates else otherwise


def exposed_s(kernels: list[Kernel]) -> list[float]:
    """Each kernel's share of the wall time. Where kernels overlap the first one counts, and communication counts only
    where it is exposed."""
    seconds = [0.0] * len(kernels)
    computing: list[tuple[int, int]] = []
    for hidden_last in (False, True):
        covered = 0
        for number in sorted(range(len(kernels)), key=lambda n: kernels[n].start):
            kernel = kernels[number]
            if kernel.communicates is not hidden_last:
                continue
            start = max(kernel.start, covered)
            covered = max(covered, kernel.end)
            if not hidden_last:
                seconds[number] = max(0, kernel.end - start) * 1e-9
                if kernel.end > start:
                    computing.append((start, kernel.end))
            else:
                seconds[number] = _outside(start, kernel.end, computing) * 1e-9
    return seconds


def _outside(start: int, end: int, busy: list[tuple[int, int]]) -> int:
    """How much of an interval lies outside the busy intervals, which are sorted and disjoint."""
    left = max(0, end - start)
    place = max(0, bisect_right(busy, (start, start)) - 1)
    while place < len(busy) and busy[place][0] < end:
        left -= max(0, min(end, busy[place][1]) - max(start, busy[place][0]))
        place += 1
    return max(0, left)
