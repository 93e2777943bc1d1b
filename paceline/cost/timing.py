"""Times one call at a time, beside a short probe: what the machine did to both at that moment is divided out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter

import torch
from torch.nn.functional import conv2d

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
    """The probe of its kind beside it."""


PRODUCT, CONVOLUTION, ELEMENTWISE = "product", "convolution", "elementwise"


def probe_of(family: str) -> str:
    """Which probe drifts as a family does: a neighbour on the machine slows each kind of work in its own way."""
    if family.startswith("convolution"):
        return CONVOLUTION
    return PRODUCT if family.startswith(("matmul", "recurrent", "attention")) else ELEMENTWISE


class Probe:
    """Three operations of always the same size. They tell how fast the machine is just now.

    Each is done twice and the second time counts, so that what came before it, which may have emptied the caches or
    left the GPU asleep, plays no part.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        on_gpu = device.type == "cuda"
        size, batch, side, elements = (2048, 32, 56, 1 << 24) if on_gpu else (192, 4, 24, 1 << 16)
        a, b, images = (torch.randn(s, device=device) for s in ((size, size), (size, size), (batch, 64, side, side)))
        c, weight = torch.empty_like(a), torch.randn(64, 64, 3, 3, device=device)
        x = torch.randn(elements, device=device)
        y = torch.empty_like(x)
        self.calls: dict[str, Call] = {
            PRODUCT: lambda: torch.mm(a, b, out=c),
            CONVOLUTION: lambda: conv2d(images, weight, padding=1),
            ELEMENTWISE: lambda: torch.tanh(x, out=y),
        }
        self.seen: dict[str, list[float]] = {kind: [] for kind in self.calls}
        for kind in self.calls:
            self.seconds(kind)
            self.seen[kind].clear()

    def seconds(self, kind: str) -> float:
        self._once(kind)
        took = self._once(kind)
        self.seen[kind].append(took)
        return took

    def usual(self) -> dict[str, float]:
        """By kind, the middle of all that was seen."""
        return {kind: median(seen) for kind, seen in self.seen.items() if seen}

    def _once(self, kind: str) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        start = perf_counter()
        self.calls[kind]()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return perf_counter() - start


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

    def time(self, call: Call, probe: str = ELEMENTWISE) -> Timed:
        """`probe`: which one is beside it."""
        return self._on_cpu(call, probe) if self.stream is None else self._on_gpu(call, probe, self.stream)

    def _on_cpu(self, call: Call, probe: str) -> Timed:
        call()
        once = _seconds(call, 1)
        count = max(1, min(1000, round(ROUND_S / max(once, 1e-7))))
        rounds = max(2, min(ROUNDS, int(MOST_S / max(once * count, 1e-7))))
        times, probes = [], []
        for _ in range(rounds):
            before = self.probe.seconds(probe)
            times.append(_seconds(call, count) / count)
            probes.append((before + self.probe.seconds(probe)) / 2)
        seconds = median(times)
        return Timed(seconds, seconds, median(probes))

    def _on_gpu(self, call: Call, probe: str, stream: torch.cuda.Stream) -> Timed:
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
        return Timed(seconds, host, self.probe.seconds(probe))

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
    """What is made is kept until the clock has stopped: giving a large piece of memory back takes its time, too."""
    start = perf_counter()
    for _ in range(count):
        made = call()
    took = perf_counter() - start
    del made
    return took
