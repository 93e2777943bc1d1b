"""Which kinds of blocks a measurement on a GPU begins with, and how many iterations each kind has."""

from __future__ import annotations

from collections import deque
from math import ceil

BLOCK = 5
PAIRS, STALLED = 4, 2
MOST_QUEUED, MOST_STALLED = 600, 3
"""A device takes about a thousand launches ahead. A stalled block has fewer: traces may lose some of them."""
TRACED = 3
"""A traced block is shorter: traces take time to process, and many short ones sample a noisy host better than a few."""
BLOCK_S = 0.02
LONGEST_BLOCK = 50
RECOVERY_S = 0.03
"""After a trace, CUPTI takes this long to detach, and the device, which was idle, runs faster for a while."""
WINDOWS = 2
"""Windows in a block of captured iterations; each window gives one sample, averaged over its iterations."""


class BlockLengths:
    """`default` is the length of an untouched block; captured iterations come `stride` at a time."""

    def __init__(self, stride: int, captured: bool) -> None:
        self.stride, self.captured = stride, captured
        self.default = BLOCK if stride == 1 else WINDOWS * stride
        self.longest = LONGEST_BLOCK
        self._each_s = BLOCK_S

    def fit_epoch(self, iterations: int) -> None:
        """Limits block lengths so that several fit into an epoch of `iterations`; a pause spoils a block."""
        if self.stride == 1:
            self.default = max(2, min(BLOCK, iterations))
            self.longest = max(self.default, min(LONGEST_BLOCK, iterations // 4))

    def adapt_to(self, each_s: float) -> None:
        """Makes blocks longer where iterations are too short to be timed reliably."""
        self._each_s = max(1e-9, each_s)
        if self.stride == 1:
            self.default = max(self.default, min(self.longest, round(BLOCK_S / self._each_s)))

    def prelude(self) -> deque[str]:
        """The kinds of the first blocks; what tracing costs is measured in pairs, with it and without it."""
        pairs = 1 if self.captured else PAIRS  # a graph is launched rarely
        eager = ["marked", *["stalled"] * STALLED] if not self.captured else []
        return deque(["warm-up", *["host alone"] * pairs, *["host traced"] * pairs, *eager])

    def length(self, kind: str, launches: float = 0.0) -> int:
        if kind == "stalled":
            return max(1, min(MOST_STALLED, int(MOST_QUEUED / max(1.0, launches))))
        if kind == "recovering" and not self.captured:
            return max(self.default, ceil(RECOVERY_S / self._each_s))
        if self.stride > 1:
            return self.default
        least, wanted = {
            "traced": (TRACED, self.default * TRACED // BLOCK),
            "marked": (BLOCK, BLOCK),
            "host alone": (BLOCK, self.default // 2),
            "host traced": (BLOCK, self.default // 2),
        }.get(kind, (BLOCK, self.default))
        return min(self.default, max(least, wanted))

    def cycle(self, every: int) -> int:
        """Iterations from one traced block to the next, if one block in `every` is traced."""
        return (every - 1) * self.default + self.length("traced") + self.length("recovering")
