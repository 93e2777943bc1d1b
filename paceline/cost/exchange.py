"""What exchanging through a server in the memory of one machine costs, as it was measured there."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ExchangeCost:
    """What exchanging through a local server adds to a worker's step, with so many workers on this machine's cores.

    Two networks of different size were trained for it: a part is the same for both, another grows with parameters.
    """

    strategy: str
    workers: int
    fixed_s: float
    byte_s: float
    """For each byte of parameters."""
    cores: int = 0
    """Of the machine; 0: those of the calibration it belongs to."""

    def crowded_s(self, alone_s: float, cores: int) -> float:
        """What a step takes beside the others, before any exchange: more workers than cores share them."""
        return max(1.0, self.workers / cores) * alone_s

    def step_s(self, alone_s: float, parameter_bytes: int, cores: int) -> float:
        """A worker's step, from what it takes one process alone."""
        return self.crowded_s(alone_s, cores) + self.fixed_s + self.byte_s * parameter_bytes
