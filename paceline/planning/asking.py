"""Whom a search asks: a simulation what exchanging takes, and somebody how many epochs are needed.

One worker exchanges with nobody, so nothing of it needs to be simulated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from paceline.cluster import Link, Machine
from paceline.cost.prediction import Prediction
from paceline.planning.candidate import Candidate
from paceline.strategy.strategy import Strategy


class Outcome(Protocol):
    """What a simulation on a cluster finds."""

    @property
    def machines(self) -> int: ...
    @property
    def step_s(self) -> float: ...
    @property
    def epoch_s(self) -> float: ...
    @property
    def samples_per_s(self) -> float: ...
    @property
    def efficiency(self) -> float: ...
    @property
    def waiting_share(self) -> float: ...
    @property
    def communication_share(self) -> float: ...
    @property
    def staleness_mean(self) -> float: ...
    @property
    def server_share(self) -> float: ...
    @property
    def bound(self) -> str: ...


@dataclass(frozen=True)
class Alone:
    """One worker takes what was predicted, `slower` times as long where its machine has fewer cores than threads."""

    prediction: Prediction
    slower: float = 1.0
    machines: int = 1
    efficiency: float = 1.0
    waiting_share: float = 0.0
    communication_share: float = 0.0
    staleness_mean: float = 0.0
    server_share: float = 0.0
    bound: str = "compute"

    @property
    def step_s(self) -> float:
        return self.slower * self.prediction.iteration_s

    @property
    def epoch_s(self) -> float:
        return self.slower * self.prediction.epoch_s

    @property
    def samples_per_s(self) -> float:
        return self.prediction.batch / self.step_s


class Simulate(Protocol):
    def __call__(
        self,
        prediction: Prediction,
        machine: Machine,
        workers: int,
        strategy: Strategy,
        *,
        network: Link | None,
        workers_per_machine: int,
        steps: int,
    ) -> Outcome: ...


class Epochs(Protocol):
    """How many epochs a candidate needs."""

    def least(self, candidate: Candidate) -> float:
        """At the least, as far as is known."""

    def known(self, candidate: Candidate) -> bool: ...

    def why_not(self, candidate: Candidate) -> str:
        """Why it will not do at all; nothing if it may."""

    def find(self, candidate: Candidate) -> None:
        """Finds out more; several times, if need be, until it is known."""


@dataclass(frozen=True)
class Given:
    """The same number of epochs for all."""

    number: float

    def least(self, candidate: Candidate) -> float:
        return self.number

    def known(self, candidate: Candidate) -> bool:
        return True

    def why_not(self, candidate: Candidate) -> str:
        return ""

    def find(self, candidate: Candidate) -> None:
        pass
