"""Times one call at a time, beside a short probe: what the machine did to both at that moment is divided out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter

import torch

Call = Callable[[], object]

ROUNDS = 5
ROUND_S = 1e-3
MOST_S = 0.15  # of one call's timing, all rounds together


@dataclass(frozen=True)
class Timed:
    seconds: float
    """On the device: what a call keeps it busy for."""
    host_s: float
    """What issuing it takes the host; on a CPU that is all of it."""
    probe_s: float
    """The probe beside it."""


class Probe:
    """A product and a copy of always the same size. It tells how fast the machine is just now."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        size = 2048 if device.type == "cuda" else 160
        self.a, self.b = (torch.randn(size, size, device=device) for _ in range(2))
        self.c = torch.empty_like(self.a)
        self.source = torch.zeros(1 << (24 if device.type == "cuda" else 18), device=device)
        self.target = torch.empty_like(self.source)
        self.seen: list[float] = []
        for _ in range(3):
            self.seconds()
        self.seen.clear()

    def seconds(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        start = perf_counter()
        torch.mm(self.a, self.b, out=self.c)
        self.target.copy_(self.source)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        took = perf_counter() - start
        self.seen.append(took)
        return took


@dataclass
class Stopwatch:
    """Times calls on one device. Backward calls go through autograd, whose cost of being called is taken off."""

    device: torch.device
    probe: Probe = field(init=False)
    stream: torch.cuda.Stream | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.probe = Probe(self.device)
        if self.device.type == "cuda":
            self.stream = torch.cuda.Stream(self.device)

    def time(self, call: Call) -> Timed:
        return self._on_cpu(call) if self.stream is None else self._on_gpu(call, self.stream)

    def _on_cpu(self, call: Call) -> Timed:
        call()
        once = _seconds(call, 1)
        count = max(1, min(1000, round(ROUND_S / max(once, 1e-7))))
        rounds = max(2, min(ROUNDS, int(MOST_S / max(once * count, 1e-7))))
        times, probes = [], []
        for _ in range(rounds):
            before = self.probe.seconds()
            times.append(_seconds(call, count) / count)
            probes.append((before + self.probe.seconds()) / 2)
        seconds = median(times)
        return Timed(seconds, seconds, median(probes))

    def _on_gpu(self, call: Call, stream: torch.cuda.Stream) -> Timed:
        """Captured as a graph and replayed, so that launching plays no part."""
        with torch.cuda.stream(stream):
            for _ in range(3):
                call()
            stream.synchronize()
            once = self._replayed(call, stream, 1, 1)
            count = max(1, min(100, round(ROUND_S / max(once, 1e-6))))
            rounds = max(2, min(ROUNDS, int(MOST_S / max(once * count, 1e-6))))
            seconds = self._replayed(call, stream, count, rounds)
            stream.synchronize()
            host = _seconds(call, 8) / 8
            stream.synchronize()
        return Timed(seconds, host, self.probe.seconds())

    def _replayed(self, call: Call, stream: torch.cuda.Stream, count: int, rounds: int) -> float:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(count):
                call()
        graph.replay()
        times: list[float] = []
        for _ in range(rounds):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record(stream)
            graph.replay()
            end.record(stream)
            end.synchronize()
            times.append(start.elapsed_time(end) * 1e-3 / count)
        return median(times)


def _seconds(call: Call, count: int) -> float:
    start = perf_counter()
    for _ in range(count):
        call()
    return perf_counter() - start
