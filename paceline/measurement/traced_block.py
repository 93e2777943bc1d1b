"""A traced block of iterations: busy time by span key, and the kernel times from which idle gaps are computed later.

The cost of tracing is known better the longer a run lasts, so gaps are computed for all blocks at its end.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from paceline.measurement.idle_time import idle_s
from paceline.measurement.kernels import Kernel
from paceline.measurement.mark_log import SpanKey
from paceline.measurement.samples import Sample
from paceline.measurement.slowdown import HostTimes, slowdown

MIN_COMPARISONS = 5

Idle = list[dict[SpanKey, float]]


class KernelTimes:
    """Launch, start, end and iteration of kernels, stored compactly because a run keeps many of them."""

    def __init__(self, kernels: list[Kernel], numbers: list[int]) -> None:
        self._copies = bytes("Memcpy" in kernel.name for kernel in kernels)
        self._moments = array("q", [moment for kernel in kernels for moment in kernel[1:]])
        self._numbers = array("i", numbers)

    def idle(self, loading: list[tuple[int, int]], launch_cost_s: float) -> Idle:
        moments = iter(self._moments)
        triples = zip(moments, moments, moments, strict=True)
        kernels = [
            Kernel("Memcpy" if copies else "", *triple) for copies, triple in zip(self._copies, triples, strict=True)
        ]
        found = idle_s(kernels, list(self._numbers), loading, launch_cost_s)
        return [found.get(number, {}) for number in range(max(self._numbers, default=-1) + 1)]


@dataclass
class TracedBlock:
    first: int
    """The number of its first iteration."""
    stride: int
    """Iterations per window."""
    busy: dict[int, dict[SpanKey, float]]
    """Seconds by span key, for each window that counts."""
    timings: KernelTimes | None
    """None if marks slowed down the host; the gaps of the previous block are used then."""
    loading: list[tuple[int, int]]
    weight: float = 1.0
    """Blocks that it stands for."""
    kernels_s: float = 0.0
    """All kernels per iteration, one added to another."""
    host_s: float = 0.0
    """Host time per iteration, and kernel launches per iteration."""
    launches: float = 0.0
    before_s: float | None = None
    """Host time per iteration of the untouched block before this one, and of the one after it; None if the host waited
    for the device."""
    after_s: float | None = None

    def comparison(self) -> HostTimes | None:
        untouched = [seconds for seconds in (self.before_s, self.after_s) if seconds is not None]
        if self.timings is None or not untouched:
            return None
        return HostTimes(self.host_s, sum(untouched) / len(untouched))

    def idle(self, slower: float) -> Idle:
        """Gaps without the cost of tracing, which is spread evenly over the launches."""
        assert self.timings is not None
        added_s = self.host_s * (1.0 - 1.0 / slower)
        return self.timings.idle(self.loading, added_s / max(1.0, self.launches))

    def samples(self, idle: Idle) -> list[Sample]:
        """One sample per window, averaged over its iterations."""
        found = []
        for number, busy in sorted(self.busy.items()):
            spans_s = {**busy, **(idle[min(number, len(idle) - 1)] if idle else {})}
            each = {key: seconds / self.stride for key, seconds in spans_s.items()}
            found.append(
                Sample(self.first + number * self.stride, each, sum(each.values()), self.weight / len(self.busy))
            )
        return found


def samples_of(blocks: list[TracedBlock], beforehand: list[HostTimes]) -> list[Sample]:
    """The samples of a run, with the gaps as they would have been without tracing.

    The slowdown comes from comparing blocks with their untouched neighbours. Comparisons made `beforehand` are used as
    long as there are few of those, or if most blocks have none because the host waits for the device. A block is
    corrected by the comparisons of the other blocks, not its own.
    """
    compared = [block.comparison() for block in blocks]
    enough = max(MIN_COMPARISONS, len(blocks) // 2)
    found: list[Sample] = []
    idle: Idle = []
    for place, block in enumerate(blocks):
        others = [c for i, c in enumerate(compared) if c is not None and i != place]
        if block.timings is not None:
            idle = block.idle(slowdown(others if len(others) >= enough else beforehand))
        found += block.samples(idle)
    return found
