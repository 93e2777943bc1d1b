"""Watches a GPU for a moment: which kernels ran, when each was launched, and when it ran."""

from __future__ import annotations

import os
import time
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.autograd.profiler import profile

from paceline.measurement.kernels import Kernel

PROBES = 8
LETS_GO = "TEARDOWN_CUPTI"
"""The library that traces (CUPTI) stays with a process after its first trace, and every launch is slower from then on,
for good: on a network whose host is the bottleneck, by a fifth of each iteration. This variable of PyTorch's profiler
makes it let go after a trace; there is no other way to ask. It takes effect at the next call of CUDA's."""


class Tracing:
    """Watches the device from `start` to `stop`, which gives the kernels in the order of their launches.

    With `lets_go` the tracing library leaves the process after each trace, and takes ten milliseconds to come back. Not
    for captured graphs: kernels of theirs were missing afterwards, and they are launched too rarely for it to matter.
    """

    def __init__(self, device: torch.device, *, lets_go: bool = False) -> None:
        self.device, self.lets_go = device, lets_go
        self._probe = torch.zeros(1, device=device)
        self._profiler: profile | None = None
        self._around: list[tuple[int, int]] = []
        self._asked_to_go = False

    def start(self) -> None:
        """The device is not waited for: one that idles for a moment is faster for a while after it."""
        self.forget_to_let_go()  # asked now, it would go in the middle of this trace
        self._profiler = profile(use_cpu=False, use_device="cuda", use_kineto=True)
        self._profiler.__enter__()
        self._around = []
        for _ in range(PROBES):  # launches whose moment is known, to align the two clocks
            before = time.perf_counter_ns()
            self._probe.zero_()
            self._around.append((before, time.perf_counter_ns()))

    def stop(self, *, stays: bool = False) -> list[Kernel]:
        """Nothing when there was no trace, or the tracing library gave none. It `stays` if the next trace follows."""
        profiler, self._profiler = self._profiler, None
        if profiler is None:
            return []
        torch.cuda.synchronize(self.device)
        if self.lets_go and not stays and LETS_GO not in os.environ:
            os.environ[LETS_GO], self._asked_to_go = "1", True
        profiler.__exit__(None, None, None)
        assert profiler.kineto_results is not None
        known = _launched_and_run(profiler.kineto_results.events())
        if len(known) < PROBES:
            return []
        shift = _shift([launched for launched, *_ in known[:PROBES]], self._around)
        return [
            Kernel(name, launched + shift, start + shift, start + duration + shift)
            for launched, start, duration, name in known[PROBES:]
        ]

    def forget_to_let_go(self) -> None:
        """The variable is as the user has it: theirs, if they set one, else absent."""
        if self._asked_to_go:
            os.environ.pop(LETS_GO, None)
            self._asked_to_go = False


def _launched_and_run(events: list[Any]) -> list[tuple[int, int, int, str]]:
    """Launch, start, duration and name of every kernel that was launched in the trace, in the order of launches."""
    on_device: list[Any] = []
    on_host: list[Any] = []
    for event in events:
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
    return sorted(known)


def _shift(launches: list[int], around: list[tuple[int, int]]) -> int:
    """What to add to the profiler's times: each known launch allows a range, all of them a narrow one."""
    low = max(before - launch for launch, (before, _) in zip(launches, around, strict=True))
    high = min(after - launch for launch, (_, after) in zip(launches, around, strict=True))
    return (low + high) // 2
