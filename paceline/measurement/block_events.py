"""CUDA events at either end of blocks: of untouched ones, and of one that the device runs without waiting for the host.

Events know nothing of traces, so they can contradict them. Before a stalled block the device is given something to do
while the host launches the block's iterations; then it runs them one kernel after another, and the events say how long
its kernels take. Kernels that a trace has lost, counted twice or slowed down add up to something else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import torch

CYCLES_PER_S = 2e9
"""Of a fast GPU; a slower one is stalled for longer."""
STALL = 1.3
"""How much longer than the host needs for a stalled block the device is kept busy."""


class BlockEvents:
    def __init__(self) -> None:
        self.alone_s: list[float] = []
        """Device time per iteration of each stalled block."""
        self._begun: torch.cuda.Event | None = None
        self._last_begun: torch.cuda.Event | None = None
        self._pending: deque[tuple[int, int, torch.cuda.Event, torch.cuda.Event]] = deque()

    def begin(self) -> None:
        """A block begins."""
        self._begun, self._last_begun = torch.cuda.Event(enable_timing=True), None
        self._begun.record()

    def last_iteration(self) -> None:
        """The last iteration of the block begins."""
        self._last_begun = torch.cuda.Event()
        self._last_begun.record()

    def begin_stalled(self, host_s: float) -> None:
        """A block begins that the host launches, in about `host_s`, while the device is busy."""
        torch.cuda._sleep(int(CYCLES_PER_S * STALL * host_s))
        self.begin()

    def end_stalled(self, count: int) -> None:
        """The block of `count` iterations ends. It does not count if the device had begun before the host was done."""
        assert self._begun is not None
        waited = self._begun.query()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        event.synchronize()
        if not waited:
            self.alone_s.append(self._begun.elapsed_time(event) * 1e-3 / count)

    def end(self, first: int, count: int) -> bool:
        """The block of `count` iterations ends. Returns whether the device keeps up with the host: it has already begun
        the last iteration."""
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        assert self._begun is not None
        self._pending.append((first, count, self._begun, event))
        return self._last_begun is not None and self._last_begun.query()

    def read(self, wait: bool = False) -> Iterator[tuple[int, int, float]]:
        """First iteration, number of iterations and seconds of each block that the device has completed."""
        while self._pending and (wait or self._pending[0][3].query()):
            first, count, start, end = self._pending.popleft()
            if wait:
                end.synchronize()
            yield first, count, start.elapsed_time(end) * 1e-3
