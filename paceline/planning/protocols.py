"""The interfaces a search uses: a simulation of the exchange between workers, and the number of epochs needed.

A single worker does not exchange anything and needs no simulation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from paceline.cluster import Link, Machine
from paceline.cost.prediction import Prediction
from paceline.planning.candidate import Candidate
from paceline.simulation.divided_prediction import DividedPrediction
from paceline.simulation.pipeline_prediction import PipelinePrediction
from paceline.strategy.strategy import Strategy


class SimulationResult(Protocol):
    """The result of a simulation on a cluster."""

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
class SingleWorker:
    """One worker takes the predicted time, `slower` times that where its machine has fewer cores than threads."""

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


@dataclass(frozen=True)
class DividedResult:
    """A divided network, whose step was simulated with its prediction."""

    prediction: PipelinePrediction | DividedPrediction
    iteration_s: float
    """Of one device with all layers, if it had the memory."""
    machines: int = 1
    staleness_mean: float = 0.0
    server_share: float = 0.0

    @property
    def step_s(self) -> float:
        return self.prediction.step_s

    @property
    def epoch_s(self) -> float:
        return self.prediction.epoch_s

    @property
    def samples_per_s(self) -> float:
        return self.prediction.samples_per_s

    @property
    def efficiency(self) -> float:
        return self.prediction.replicas * self.iteration_s / (self.step_s * self.prediction.processes)

    @property
    def waiting_share(self) -> float:
        """The bubble of a pipeline, with the time of hand-overs."""
        return self.prediction.idle_s / self.step_s

    @property
    def communication_share(self) -> float:
        return self.prediction.exchange_s / self.step_s

    @property
    def bound(self) -> str:
        if self.communication_share >= 0.5:
            return "network"
        return "compute" if self.waiting_share < 0.5 else "straggling"


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
    ) -> SimulationResult: ...


class Epochs(Protocol):
    """The number of epochs a candidate needs."""

    def least(self, candidate: Candidate) -> float:
        """A lower bound, as far as known."""

    def known(self, candidate: Candidate) -> bool: ...

    def why_not(self, candidate: Candidate) -> str:
        """Why the candidate is ruled out; empty if it is not."""

    def find(self, candidate: Candidate) -> None:
        """Improves what is known; may have to be called several times."""


@dataclass(frozen=True)
class FixedEpochs:
    """The same number of epochs for all candidates."""

    number: float

    def least(self, candidate: Candidate) -> float:
        return self.number

    def known(self, candidate: Candidate) -> bool:
        return True

    def why_not(self, candidate: Candidate) -> str:
        return ""

    def find(self, candidate: Candidate) -> None:
        pass
