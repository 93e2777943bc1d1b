"""What a GPU did while a block of iterations ran: every kernel, when it was launched, and when it ran.

Kernel times do not grow when the host is slowed down by being watched, so a layer's time on a GPU is that of
its kernels. Whose a kernel is, is told by the moment of its launch on the host's clock.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from paceline.measurement.tape import Owner, Tape


class Kernel(NamedTuple):
    """One piece of work on the device; times in nanoseconds of the host's `perf_counter`."""

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


def owners_by_launch(kernels: list[Kernel], tapes: list[Tape]) -> list[tuple[int, Owner]]:
    """For every kernel the iteration (number of a tape) and the owner at whose time it was launched."""
    starts = [tape.marks[0][2] for tape in tapes]
    moments = [[mark[3] for mark in tape.marks] for tape in tapes]
    found = []
    for kernel in kernels:
        number = max(0, bisect_right(starts, kernel.launched) - 1)
        place = max(0, bisect_right(moments[number], kernel.launched) - 1)
        found.append((number, owner_of(kernel, tapes[number].marks[place][1])))
    return found


def owner_of(kernel: Kernel, otherwise: Owner) -> Owner:
    """A copy of data and communication are told by what they are, not by who was at work."""
    if kernel.copies:
        return "copy", ""
    return ("communicate", "") if kernel.communicates else otherwise


def alone_s(kernels: list[Kernel]) -> list[float]:
    """Each kernel's part of the time: of those that overlap the first counts, and communication only where it is
    alone, which is where it is exposed."""
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
    """How much of an interval lies outside of busy ones, which are sorted and apart."""
    left = max(0, end - start)
    place = max(0, bisect_right(busy, (start, start)) - 1)
    while place < len(busy) and busy[place][0] < end:
        left -= max(0, min(end, busy[place][1]) - max(start, busy[place][0]))
        place += 1
    return max(0, left)
