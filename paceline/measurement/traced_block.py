"""A block of iterations that was traced: whose time its kernels took, and enough to work out its gaps later.

What being traced costs is known better the longer a run lasts, so gaps are worked out at its end, for all blocks.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from paceline.measurement.idleness import idle_s
from paceline.measurement.kernels import Kernel
from paceline.measurement.session import Sample
from paceline.measurement.slowdown import Comparison, slowdown
from paceline.measurement.tape import Owner

ENOUGH_COMPARISONS = 5

Idle = list[dict[Owner, float]]


class Timings:
    """When kernels were launched, began and ended, and of which iteration they are: a run keeps many of these."""

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
    """Iterations in each of the pieces that follow."""
    busy: dict[int, dict[Owner, float]]
    """Seconds by owner, of the pieces that count."""
    timings: Timings | None
    """None where marks slowed the host down: gaps are then those of the block before."""
    loading: list[tuple[int, int]]
    host_s: float = 0.0
    """The host's time for an iteration, and how many launches it made in one."""
    launches: float = 0.0
    before_s: float | None = None
    """The host's time for an iteration of the untouched block before it, and of the one after it, where the host was
    not waiting for the device."""
    after_s: float | None = None

    def comparison(self) -> Comparison | None:
        beside = [seconds for seconds in (self.before_s, self.after_s) if seconds is not None]
        if self.timings is None or not beside:
            return None
        return Comparison(self.host_s, sum(beside) / len(beside))

    def idle(self, slower: float) -> Idle:
        """Gaps without what tracing adds to the host's time, which is spread over its launches."""
        assert self.timings is not None
        added_s = self.host_s * (1.0 - 1.0 / slower)
        return self.timings.idle(self.loading, added_s / max(1.0, self.launches))

    def samples(self, idle: Idle) -> list[Sample]:
        """Of every piece one, the mean of its iterations."""
        found = []
        for number, busy in sorted(self.busy.items()):
            owners = {**busy, **(idle[min(number, len(idle) - 1)] if idle else {})}
            each = {owner: seconds / self.stride for owner, seconds in owners.items()}
            found.append(Sample(self.first + number * self.stride, each, sum(each.values())))
        return found


def samples_of(blocks: list[TracedBlock], beforehand: list[Comparison]) -> list[Sample]:
    """The samples of a run, with the gaps there would have been without tracing.

    How much slower it makes the host is told by comparing blocks with their untouched neighbours, and by comparisons
    made `beforehand` as long as there are few of those, or where most blocks have none since the host waits for the
    device. A block is corrected by the others' comparisons, not its own.
    """
    compared = [block.comparison() for block in blocks]
    enough = max(ENOUGH_COMPARISONS, len(blocks) // 2)
    found: list[Sample] = []
    idle: Idle = []
    for place, block in enumerate(blocks):
        others = [c for i, c in enumerate(compared) if c is not None and i != place]
        if block.timings is not None:
            idle = block.idle(slowdown(others if len(others) >= enough else beforehand))
        found += block.samples(idle)
    return found
