"""Times one call at a time, next to a short probe, so that momentary slowdowns of the machine cancel out.

On a CPU the caches hold before each call what a large network leaves there: the result of the operation before, and of
the rest nothing, because other operations ran since. A short call is also timed with all of it in the caches, where a
small network finds it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter

import torch
from torch import Tensor
from torch.nn.functional import conv2d

Call = Callable[[], object]

ROUNDS = 5
ROUND_S = 1e-3
MAX_S = 0.15  # limit for timing one call, all rounds together
CALLS = 5  # in a round on a CPU, of what takes no longer than emptying the caches
CACHED_ELEMENTS = 1 << 21
"""Of float32 numbers, 8 MB: more than the caches of two cores hold for themselves, less than what they share."""


@dataclass(frozen=True)
class Timed:
    seconds: float
    """Busy time of the device per call."""
    host_s: float
    """Host time to issue a call; on a CPU the same as `seconds`."""
    probe_s: float
    """Time of the matching probe at that moment."""
    cached_s: float = 0.0
    """Seconds where the caches of a CPU hold everything; 0 on a GPU."""


PRODUCT, CONVOLUTION, ELEMENTWISE = "product", "convolution", "elementwise"


def probe_of(family: str) -> str:
    """The probe that drifts like the family: contention slows down each kind of work differently."""
    if family.startswith("convolution"):
        return CONVOLUTION
    return PRODUCT if family.startswith(("matmul", "recurrent", "attention")) else ELEMENTWISE


class Probe:
    """Three operations of fixed size that show how fast the machine is at the moment.

    Each runs twice and the second run counts, so that cold caches or an idle GPU before it do not matter.
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
        self._cached(kind)
        took = self._cached(kind)
        self.seen[kind].append(took)
        return took

    def medians(self) -> dict[str, float]:
        """The median time of each probe so far."""
        return {kind: median(seen) for kind, seen in self.seen.items() if seen}

    def _cached(self, kind: str) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        start = perf_counter()
        self.calls[kind]()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return perf_counter() - start


@dataclass
class Stopwatch:
    """Times calls on one device. The overhead of autograd in backward calls is subtracted later."""

    device: torch.device
    probe: Probe = field(init=False)
    stream: torch.cuda.Stream | None = field(init=False, default=None)
    _others: Tensor = field(init=False)
    """What other operations have in the caches."""

    def __post_init__(self) -> None:
        self.probe = Probe(self.device)
        on_gpu = self.device.type == "cuda"
        self._others = torch.ones(0 if on_gpu else CACHED_ELEMENTS)
        if on_gpu:
            self.stream = torch.cuda.Stream(self.device)

    def time(self, call: Call, probe: str = ELEMENTWISE, fresh: Tensor | None = None) -> Timed:
        """`probe`: the kind of probe to run next to the call; `fresh`: what the caches of a CPU still hold."""
        return self._on_cpu(call, probe, fresh) if self.stream is None else self._on_gpu(call, probe, self.stream)

    def _on_cpu(self, call: Call, probe: str, fresh: Tensor | None) -> Timed:
        call()
        once = min(_seconds(call, 1) for _ in range(2))  # a call that was interrupted once is still a short one
        calls = CALLS if once < ROUND_S else 1
        rounds = max(2, min(ROUNDS, int(MAX_S / max(once * calls, 1e-7))))
        times, cached, probes = [], [], []
        for _ in range(rounds):
            before = self.probe.seconds(probe)
            for _ in range(calls):
                self._fill_caches(fresh)
                times.append(_seconds(call, 1))
            if calls > 1:
                cached += [_seconds(call, 1) for _ in range(calls)]
            probes.append((before + self.probe.seconds(probe)) / 2)
        seconds = median(times)
        return Timed(seconds, seconds, median(probes), min(seconds, median(cached or times)))

    def _fill_caches(self, fresh: Tensor | None) -> None:
        self._others.mul_(1)
        if fresh is not None and fresh.numel() < CACHED_ELEMENTS:
            fresh.data.mul_(1)  # `data`, because autograd refuses saved tensors that were changed

    def _on_gpu(self, call: Call, probe: str, stream: torch.cuda.Stream) -> Timed:
        """Captures a graph and replays it, so that launch times do not matter."""
        with torch.cuda.stream(stream):
            for _ in range(3):
                call()
            stream.synchronize()
            once = self._replayed(call, stream, 1, 1)
            count = max(1, min(100, round(ROUND_S / max(once, 1e-6))))
            rounds = max(2, min(ROUNDS, int(MAX_S / max(once * count, 1e-6))))
            seconds = self._replayed(call, stream, count, rounds)
            stream.synchronize()
            host = _seconds(call, 8) / 8
            stream.synchronize()
        return Timed(seconds, host, self.probe.seconds(probe))

    def _replayed(self, call: Call, stream: torch.cuda.Stream, count: int, rounds: int) -> float:
        graph = torch.cuda.CUDAGraph()
        stream.synchronize()
        graph.capture_begin()  # `torch.cuda.graph` would collect garbage first, which takes longer than the trial
        try:
            for _ in range(count):
                call()
        finally:
            graph.capture_end()
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
    """Results are kept until the clock has stopped, because freeing a large tensor takes time."""
    start = perf_counter()
    for _ in range(count):
        made = call()
    took = perf_counter() - start
    del made
    return took
