"""What a GPU did while a block of iterations ran: every kernel, when it was launched, and when it ran.

Kernel times do not grow when the host is slowed down by being watched, so a layer's time on a GPU is that of
its kernels. Which layer a kernel belongs to is told by the moment of its launch on the host's clock.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median

import torch
from torch.profiler import ProfilerActivity, profile

from paceline.measure.tape import Owner, Tape

PROBES = 8


@dataclass(frozen=True)
class Kernel:
    """One piece of work on the device; times in nanoseconds of the host's `perf_counter`."""

    name: str
    launched: int
    start: int
    end: int


@dataclass
class KernelTrace:
    kernels: list[Kernel] = field(default_factory=list)


@contextmanager
def traced(device: torch.device) -> Iterator[KernelTrace]:
    """Fills the trace when the block ends. The device is idle at both ends."""
    trace = KernelTrace()
    probe = torch.zeros(1, device=device)
    torch.cuda.synchronize(device)
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        around = []
        for _ in range(PROBES):  # launches whose moment is known, to align the two clocks
            before = time.perf_counter_ns()
            probe.zero_()
            around.append((before, time.perf_counter_ns()))
        torch.cuda.synchronize(device)
        yield trace
        torch.cuda.synchronize(device)
    _fill(trace, profiler, around)


def _fill(trace: KernelTrace, profiler: profile, around: list[tuple[int, int]]) -> None:
    assert profiler.profiler is not None and profiler.profiler.kineto_results is not None
    events = profiler.profiler.kineto_results.events()
    launches: dict[int, int] = {}
    work = []
    for event in events:
        if "CUDA" in str(event.device_type()):
            work.append((event.name(), event.correlation_id(), event.start_ns(), event.duration_ns()))
        elif event.name().startswith(("cudaLaunch", "cuLaunch", "cudaMemcpy", "cudaMemset", "cudaGraphLaunch")):
            launches[event.correlation_id()] = event.start_ns()
    work.sort(key=lambda w: w[2])
    probes = sorted(launches[w[1]] for w in work if w[1] in launches)[:PROBES]
    if len(probes) < PROBES:
        return
    shift = _shift(probes, around)
    first = probes[-1]
    for name, correlation, start, duration in work:
        launched = launches.get(correlation)
        if launched is not None and launched > first:
            trace.kernels.append(Kernel(name, launched + shift, start + shift, start + duration + shift))


def _shift(launches: list[int], around: list[tuple[int, int]]) -> int:
    """What to add to the profiler's times: each known launch allows a range, all of them a narrow one."""
    low = max(before - launch for launch, (before, _) in zip(launches, around, strict=True))
    high = min(after - launch for launch, (_, after) in zip(launches, around, strict=True))
    return (low + high) // 2


def attribute(trace: KernelTrace, tapes: list[Tape]) -> list[dict[Owner, float]]:
    """For each iteration's tape, the seconds of device work by owner; of kernels that overlap, the first counts."""
    results: list[dict[Owner, float]] = [{} for _ in tapes]
    starts = [tape.marks[0][2] for tape in tapes]
    moments = [[mark[3] for mark in tape.marks] for tape in tapes]
    covered = 0
    for kernel in sorted(trace.kernels, key=lambda k: k.start):
        alone = max(0, kernel.end - max(kernel.start, covered))
        covered = max(covered, kernel.end)
        number = bisect_right(starts, kernel.launched) - 1
        if number < 0:
            continue
        tape = tapes[number]
        place = max(0, bisect_right(moments[number], kernel.launched) - 1)
        owner = tape.marks[place][1]
        if "Memcpy HtoD" in kernel.name:
            owner = ("copy", "")
        elif "nccl" in kernel.name.lower():
            owner = ("communicate", "")
        results[number][owner] = results[number].get(owner, 0.0) + alone * 1e-9
    return results


def launch_cost_s(device: torch.device, launches: int = 1_000, rounds: int = 5) -> float:
    """What being traced adds to a launch, on the host: small kernels one after another, with and without."""
    x = torch.zeros(64, device=device)

    def burst() -> float:
        torch.cuda.synchronize(device)
        start = time.perf_counter()
        for _ in range(launches):
            x.add_(1.0)
        seconds = time.perf_counter() - start
        torch.cuda.synchronize(device)
        return seconds

    costs = []
    for _ in range(rounds):
        plain = burst()
        with traced(device):
            watched = burst()
        costs.append((watched - plain) / launches)
    return max(0.0, median(costs))
