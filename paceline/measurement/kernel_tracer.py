"""Traces a GPU with PyTorch's profiler: which kernels ran, when each was launched, and when it ran."""

from __future__ import annotations

import os
import time
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.autograd.profiler import profile

from paceline.measurement.kernels import Kernel

PROBES = 8
TEARDOWN_VARIABLE = "TEARDOWN_CUPTI"
"""CUPTI stays attached to a process after its first trace and slows down every launch from then on: by 20 % of an
iteration where the host is the bottleneck. This environment variable of PyTorch's profiler makes CUPTI detach after a
trace; there is no other way to request it. It takes effect at the next CUDA call."""


class KernelTracer:
    """Traces the device from `start` to `stop`, which returns the kernels in launch order.

    With `detach`, CUPTI detaches from the process after each trace; attaching again takes 10 ms. It is not used for
    captured graphs: kernels were missing afterwards, and graphs are launched too rarely for it to matter.
    """

    def __init__(self, device: torch.device, *, detach: bool = False) -> None:
        self.device, self.detach = device, detach
        self._probe = torch.zeros(1, device=device)
        self._profiler: profile | None = None
        self._around: list[tuple[int, int]] = []
        self._variable_set = False

    def start(self) -> None:
        """Does not synchronize: a device that was idle for a moment runs faster for a while."""
        self.restore_environment()  # otherwise CUPTI would detach in the middle of this trace
        self._profiler = profile(use_cpu=False, use_device="cuda", use_kineto=True)
        self._profiler.__enter__()
        self._around = []
        for _ in range(PROBES):  # launches at known times, to align the two clocks
            before = time.perf_counter_ns()
            self._probe.zero_()
            self._around.append((before, time.perf_counter_ns()))

    def stop(self, *, keep_attached: bool = False) -> list[Kernel]:
        """The kernels, or nothing if there was no trace. Pass `keep_attached` if the next trace follows at once."""
        profiler, self._profiler = self._profiler, None
        if profiler is None:
            return []
        torch.cuda.synchronize(self.device)
        if self.detach and not keep_attached and TEARDOWN_VARIABLE not in os.environ:
            os.environ[TEARDOWN_VARIABLE], self._variable_set = "1", True
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

    def restore_environment(self) -> None:
        """Removes the environment variable if this tracer set it."""
        if self._variable_set:
            os.environ.pop(TEARDOWN_VARIABLE, None)
            self._variable_set = False


def _launched_and_run(events: list[Any]) -> list[tuple[int, int, int, str]]:
    """Launch, start, duration and name of every kernel launched during the trace, in launch order."""
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
        if launched is not None:  # else it was launched before the trace
            known.append((launched, event.start_ns(), event.duration_ns(), event.name()))
    return sorted(known)


def _shift(launches: list[int], mark_around: list[tuple[int, int]]) -> int:
    """The offset from the profiler's clock to ours: each known launch allows a range, together a narrow one."""
    low = max(before - launch for launch, (before, _) in zip(launches, mark_around, strict=True))
    high = min(after - launch for launch, (_, after) in zip(launches, mark_around, strict=True))
    return (low + high) // 2
