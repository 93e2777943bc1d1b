"""What exchanging through a server in the memory of one machine costs, as it was measured there."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.strategy.strategy import Strategy

NOT_TIMED = ("name", "warm_start", "full_pass_per_worker")
"""Fields that change nothing about how long a step takes."""


def protocol_of(strategy: Strategy) -> str:
    """What a strategy's steps are like, whatever it is called: `groups=none, overlap=true, local_step=true`.

    Fields with their usual value are left out, so that a calibration stays valid when strategies get another field.
    """
    usual = Strategy()
    fields = [field.name for field in dataclasses.fields(strategy) if field.name not in NOT_TIMED]
    values = {name: getattr(strategy, name) for name in fields}
    shown = {name: value for name, value in values.items() if name == "groups" or value != getattr(usual, name)}
    return ", ".join(
        f"{name}={value if isinstance(value, str) else str(value).lower()}" for name, value in shown.items()
    )


def crowded(workers: int, cores: int) -> float:
    """How many times as long a step takes where so many workers share the cores."""
    return max(1.0, workers / cores)


@dataclass(frozen=True)
class ExchangeCost:
    """What exchanging through a local server adds to a worker's step, with so many workers on this machine's cores.

    Networks of different size were trained for it. A part is the same for all, another grows with their parameters,
    and faster once these no longer fit into a core's cache.
    """

    strategy: str
    """As `protocol_of` describes it."""
    workers: int
    fixed_s: float
    byte_s: float
    """For each byte of parameters, up to the bend."""
    cores: int = 0
    """Of the machine; 0: those of the calibration it belongs to."""
    bend_bytes: int = 0
    """0: there is none."""
    beyond_byte_s: float = 0.0

    @classmethod
    def through(cls, strategy: str, workers: int, cores: int, points: Sequence[tuple[int, float]]) -> ExchangeCost:
        """From the parameters' bytes of three networks, smallest first, and what exchanging added to their steps.

        Never less than nothing for a byte.
        """
        (small, first_s), (middle, second_s), (large, third_s) = points
        byte_s = max(0.0, (second_s - first_s) / (middle - small))
        beyond_byte_s = max(0.0, (third_s - second_s) / (large - middle))
        return cls(strategy, workers, first_s - byte_s * small, byte_s, cores, middle, beyond_byte_s)

    def crowded_s(self, alone_s: float, cores: int) -> float:
        """What a step takes beside the others, before any exchange: more workers than cores share them."""
        return crowded(self.workers, cores) * alone_s

    def step_s(self, alone_s: float, parameter_bytes: int, cores: int) -> float:
        """A worker's step, from what it takes one process alone."""
        beyond = max(0, parameter_bytes - self.bend_bytes) if self.bend_bytes else 0
        exchanging_s = self.fixed_s + self.byte_s * (parameter_bytes - beyond) + self.beyond_byte_s * beyond
        return self.crowded_s(alone_s, cores) + exchanging_s
