"""The measured cost of exchanging parameters through a server in the shared memory of one machine."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.strategy.strategy import Strategy

NOT_TIMED = ("name", "warm_start", "full_pass_per_worker")
"""Fields that do not affect the time of a step."""


def protocol_of(strategy: Strategy) -> str:
    """The fields that determine a strategy's step time: `groups=none, overlap=true, local_step=true`.

    Fields with their default value are left out, so that a calibration stays valid when strategies get new fields.
    """
    medians = Strategy()
    fields = [field.name for field in dataclasses.fields(strategy) if field.name not in NOT_TIMED]
    values = {name: getattr(strategy, name) for name in fields}
    shown = {name: value for name, value in values.items() if name == "groups" or value != getattr(medians, name)}
    return ", ".join(
        f"{name}={value if isinstance(value, str) else str(value).lower()}" for name, value in shown.items()
    )


def oversubscription(workers: int, cores: int) -> float:
    """The slowdown of a step if `workers` share `cores`."""
    return max(1.0, workers / cores)


@dataclass(frozen=True)
class ExchangeCost:
    """What exchanging through a local server adds to a worker's step, for a number of workers on this machine.

    Fitted to networks of different sizes: a fixed part, and a part that grows with the size of the parameters, faster
    once they exceed a core's cache.
    """

    strategy: str
    """As `protocol_of` describes it."""
    workers: int
    fixed_s: float
    byte_s: float
    """Seconds per byte of parameters, up to the bend."""
    cores: int = 0
    """Cores of the machine; 0: those of the calibration this belongs to."""
    bend_bytes: int = 0
    """Size of the parameters above which bytes cost `beyond_byte_s`; 0: none."""
    beyond_byte_s: float = 0.0

    @classmethod
    def fit(cls, strategy: str, workers: int, cores: int, points: Sequence[tuple[int, float]]) -> ExchangeCost:
        """Fits the cost to (parameter bytes, added seconds) of three networks, smallest first.

        The cost per byte is never negative.
        """
        (small, first_s), (middle, second_s), (large, third_s) = points
        byte_s = max(0.0, (second_s - first_s) / (middle - small))
        beyond_byte_s = max(0.0, (third_s - second_s) / (large - middle))
        return cls(strategy, workers, first_s - byte_s * small, byte_s, cores, middle, beyond_byte_s)

    def oversubscribed_s(self, alone_s: float, cores: int) -> float:
        """The time of a step before any exchange, if workers share the cores."""
        return oversubscription(self.workers, cores) * alone_s

    def step_s(self, alone_s: float, parameter_bytes: int, cores: int) -> float:
        """The time of a worker's step, from that of a single process."""
        beyond = max(0, parameter_bytes - self.bend_bytes) if self.bend_bytes else 0
        exchanging_s = self.fixed_s + self.byte_s * (parameter_bytes - beyond) + self.beyond_byte_s * beyond
        return self.oversubscribed_s(alone_s, cores) + exchanging_s
