"""What a GPU did while a block of iterations ran: every kernel, when it was launched, and when it ran.

Kernel times do not grow when the host is slowed down by being watched, so a layer's time on a GPU is that of
its kernels. Whose a kernel is, is told by the moment of its launch on the host's clock.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from typing import Any, NamedTuple

import torch
from torch.autograd import DeviceType
from torch.autograd.profiler import profile

from paceline.measure.tape import Owner, Tape

PROBES = 8


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


class Tracing:
    """Watches the device from `start` to `stop`, which gives the kernels in the order of their launches."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._probe = torch.zeros(1, device=device)
        self._profiler: profile | None = None
        self._around: list[tuple[int, int]] = []

    def start(self) -> None:
        """The device is not waited for: one that idles for a moment is faster for a while after it."""
        self._profiler = profile(use_cpu=False, use_device="cuda", use_kineto=True)
        self._profiler.__enter__()
        self._around = []
        for _ in range(PROBES):  # launches whose moment is known, to align the two clocks
            before = time.perf_counter_ns()
            self._probe.zero_()
            self._around.append((before, time.perf_counter_ns()))

    def stop(self) -> list[Kernel]:
        profiler, self._profiler = self._profiler, None
        if profiler is None:
            return []
        torch.cuda.synchronize(self.device)
        profiler.__exit__(None, None, None)
        assert profiler.kineto_results is not None
        on_device: list[Any] = []
        on_host: list[Any] = []
        for event in profiler.kineto_results.events():
            (on_device if event.device_type() == DeviceType.CUDA else on_host).append(event)
        wanted = {event.correlation_id() for event in on_device}
        launches = {}
        for event in on_host:
            correlation = event.correlation_id()
            if correlation in wanted:
                launches[correlation] = event.start_ns()
        known = []
        for event in on_device:
            launched = launches.get(event.correlation_id())
            if launched is not None:  # else it was launched before the trace began
                known.append((launched, event.start_ns(), event.duration_ns(), event.name()))
        known.sort()
        if len(known) < PROBES:
            return []
        shift = _shift([launched for launched, *_ in known[:PROBES]], self._around)
        return [
            Kernel(name, launched + shift, start + shift, start + duration + shift)
            for launched, start, duration, name in known[PROBES:]
        ]


def _shift(launches: list[int], around: list[tuple[int, int]]) -> int:
    """What to add to the profiler's times: each known launch allows a range, all of them a narrow one."""
    low = max(before - launch for launch, (before, _) in zip(launches, around, strict=True))
    high = min(after - launch for launch, (_, after) in zip(launches, around, strict=True))
    return (low + high) // 2


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
