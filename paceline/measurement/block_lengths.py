"""How many iterations a block has on a GPU, by what it is for."""

from __future__ import annotations

from math import ceil

BLOCK = 5
TRACED = 3
"""A traced block is shorter: a trace has to be read, and many short ones tell more of an unsteady host than a few."""
BLOCK_S = 0.02
LONGEST_BLOCK = 50
RECOVERY_S = 0.03
"""After a trace the tracing library takes its time to leave, and the device, which had a pause, is faster."""
WINDOWS = 2
"""A block of captured iterations has so many windows; each of them is a sample of many."""


class BlockLengths:
    """`usual` is an untouched block's; captured iterations come `stride` at a time."""

    def __init__(self, stride: int, captured: bool) -> None:
        self.stride, self.captured = stride, captured
        self.usual = BLOCK if stride == 1 else WINDOWS * stride
        self.longest = LONGEST_BLOCK
        self._each_s = BLOCK_S

    def fit_into(self, iterations: int) -> None:
        """So many follow each other without a pause, which would spoil a block; some blocks should fit in."""
        if self.stride == 1:
            self.usual = max(2, min(BLOCK, iterations))
            self.longest = max(self.usual, min(LONGEST_BLOCK, iterations // 4))

    def suit(self, each_s: float) -> None:
        """An iteration takes so long: of short ones a block needs more before it can be timed."""
        self._each_s = max(1e-9, each_s)
        if self.stride == 1:
            self.usual = max(self.usual, min(self.longest, round(BLOCK_S / self._each_s)))

    def of(self, kind: str) -> int:
        if kind == "recovering" and not self.captured:
            return max(self.usual, ceil(RECOVERY_S / self._each_s))
        if self.stride > 1:
            return self.usual
        least, wanted = {
            "traced": (TRACED, self.usual * TRACED // BLOCK),
            "marked": (BLOCK, BLOCK),
            "host alone": (BLOCK, self.usual // 2),
            "host traced": (BLOCK, self.usual // 2),
        }.get(kind, (BLOCK, self.usual))
        return min(self.usual, max(least, wanted))

    def cycle(self, every: int) -> int:
        """Iterations from one look to the next, if one block in so many is looked into."""
        return (every - 1) * self.usual + self.of("traced") + self.of("recovering")
