"""A machine made of numbers: a host that launches, a device that runs what was launched, and a clock that both share.

The host takes longer for a launch while it is traced, and the device runs a kernel when it has been launched and the
one before it is done. A measurement of such a machine can be compared with what is true of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import torch

from paceline.measurement import gpu_session
from paceline.measurement.gpu_session import GpuSession
from paceline.measurement.kernels import Kernel
from paceline.measurement.mark_log import MarkLog

QUEUE = 1_000


class FakeGpu:
    def __init__(self, launch_ns: int, kernels_ns: list[int], traced_ns: int = 0) -> None:
        self.launch_ns, self.kernels_ns, self.traced_ns = launch_ns, kernels_ns, traced_ns
        self.now_ns, self.done_ns = 1_000_000_000, 0
        self.mood = 1.0
        """The current slowdown of the host."""
        self.traced_longer = 1.0
        """Slowdown of kernels while they are traced; nothing corrects that."""
        self.trace: list[Kernel] | None = None
        self.traces = 0
        self.loses_traces = False
        self.fault: Callable[[list[Kernel]], list[Kernel]] = lambda kernels: kernels
        """What is wrong with the traces."""
        self._queue: deque[int] = deque()

    def launch(self, name: str, length_ns: int) -> None:
        launched = self.now_ns
        self.now_ns += round(self.mood * (self.launch_ns + (self.traced_ns if self.trace is not None else 0)))
        start = max(self.done_ns, launched + 3_000)
        self.done_ns = start + round(length_ns * (self.traced_longer if self.trace is not None else 1.0))
        self._queue.append(self.done_ns)
        if len(self._queue) > QUEUE:
            self.now_ns = max(self.now_ns, self._queue.popleft())
        if self.trace is not None:
            self.trace.append(Kernel(name, launched, start, self.done_ns))

    def iteration(self, session: GpuSession) -> None:
        half = len(self.kernels_ns) // 2
        for place, length_ns in enumerate(self.kernels_ns):
            if place in (0, half):
                session.mark(("backward" if place else "forward", "layer"))
            self.launch(f"kernel {place % 7}", length_ns)
        session.mark(("loop", ""))

    def window(self, session: GpuSession, length: int) -> None:
        """`count` iterations captured as a graph, which is one launch."""
        launched, start = self.now_ns, max(self.done_ns, self.now_ns + 3_000)
        self.now_ns += self.launch_ns
        for _ in range(length):
            for place, length_ns in enumerate(self.kernels_ns):
                self.done_ns = start + length_ns
                if self.trace is not None:
                    self.trace.append(Kernel(f"kernel {place}", launched, start, self.done_ns))
                start = self.done_ns
        session.mark(("loop", ""))

    def sleep(self, cycles: int) -> None:
        self.done_ns = max(self.done_ns, self.now_ns) + cycles // 2

    def synchronize(self, device: object = None) -> None:
        self.now_ns = max(self.now_ns, self.done_ns)

    def install(self, monkeypatch) -> None:
        machine = self

        class Event:
            def __init__(self, enable_timing: bool = False) -> None:
                self.at_ns = 0

            def record(self) -> None:
                self.at_ns = max(machine.now_ns, machine.done_ns)

            def query(self) -> bool:
                return machine.now_ns >= self.at_ns

            def synchronize(self) -> None:
                machine.now_ns = max(machine.now_ns, self.at_ns)

            def elapsed_time(self, end: Event) -> float:
                return (end.at_ns - self.at_ns) * 1e-6

        class KernelTracer:
            def __init__(self, device: object, *, detach: bool = False) -> None:
                pass

            def start(self) -> None:
                machine.now_ns += 10_000_000
                machine.trace = []
                machine.traces += 1

            def stop(self, *, keep_attached: bool = False) -> list[Kernel]:
                machine.synchronize()
                machine.now_ns += 50_000_000
                kernels, machine.trace = machine.trace, None
                return [] if machine.loses_traces or kernels is None else machine.fault(kernels)

            def restore_environment(self) -> None:
                pass

        clock: Callable[[], int] = lambda: machine.now_ns  # noqa: E731
        monkeypatch.setattr(torch.cuda, "Event", Event)
        monkeypatch.setattr(torch.cuda, "synchronize", machine.synchronize)
        monkeypatch.setattr(torch.cuda, "_sleep", machine.sleep)
        monkeypatch.setattr(gpu_session, "KernelTracer", KernelTracer)
        monkeypatch.setattr(gpu_session, "MarkLog", lambda: MarkLog(clock=clock))
        monkeypatch.setattr(gpu_session, "perf_counter", lambda: machine.now_ns * 1e-9)
