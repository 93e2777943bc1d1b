"""Simulates a strategy on a virtual cluster: with gradients for convergence, without them for time alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from paceline.errors import StrategyError
from paceline.simulation.links import message_sizes
from paceline.simulation.virtual_cluster import VirtualCluster
from paceline.simulation.virtual_driver import VirtualDriver
from paceline.simulation.virtual_store import VirtualStore
from paceline.simulation.worker_times import SPANS, WorkerTimes
from paceline.strategy.coordinator import Coordinator
from paceline.strategy.distribution import Distribution
from paceline.strategy.event_record import EventRecord
from paceline.strategy.strategy import Strategy
from paceline.testing.faults import Fault
from paceline.trace import Trace


@dataclass(frozen=True, eq=False)
class Simulation:
    """The result. There are parameters if gradients were computed, and events if they were recorded."""

    distribution: Distribution
    trace: Trace
    parameters: Tensor | None = None
    events: EventRecord | None = None


class Observer(Protocol):
    """Called for every epoch and every update, and now and then between them."""

    def epoch_done(self, epoch: int) -> None: ...

    def updated(self, update: int) -> None: ...

    def advanced(self) -> None: ...


class Simulator:
    """A simulation that can be observed while it runs; `now_s`, `coordinator` and `gradients` say where it is."""

    def __init__(
        self,
        strategy: Strategy,
        workers: int,
        cluster: VirtualCluster,
        *,
        batches: int,
        epochs: int = 1,
        seed: int = 0,
        message_bytes: int = 0,
        gradients: VirtualStore | None = None,
        on_bad_gradient: str = "stop",
        faults: tuple[Fault, ...] = (),
        observer: Observer | None = None,
        spans: int = SPANS,
        slots: int | None = None,
    ) -> None:
        strategy.check(workers, batches)
        cluster.check(workers, faults)
        network = cluster.network
        overlaps = network is not None and network.shared
        self.strategy, self.workers, self.gradients = strategy, workers, gradients
        ahead = 2 if overlaps and strategy.overlap else 1
        self.coordinator = Coordinator(strategy, workers, batches, epochs, ahead=ahead, slots=slots)
        self.times = WorkerTimes(spans)
        messages = message_sizes(strategy, message_bytes) if gradients is None else gradients.messages
        self.driver = VirtualDriver(
            self.coordinator, cluster, self.times, seed=seed, messages=messages, gradients=gradients,
            on_bad_gradient=on_bad_gradient, faults=faults, observer=observer,
        )  # fmt: skip

    @property
    def now_s(self) -> float:
        return self.driver.now_s

    def run(self) -> Simulation:
        try:
            self.driver.run(self.workers)
        finally:
            self.driver.observer = None  # no reference cycle keeps the run's memory
        gradients = self.gradients
        parameters = gradients.current if gradients is not None else None
        events = gradients.events() if gradients is not None and gradients.recording else None
        return Simulation(self.distribution(), self.times.trace(self.now_s), parameters, events)

    def distribution(self) -> Distribution:
        """How it was distributed, so far."""
        ledger = self.coordinator.ledger.summary()
        made = self.gradients
        by_worker = self.times.records(made.scores, made.accuracies) if made else self.times.records({})
        return Distribution(
            strategy=self.strategy,
            workers=self.workers,
            driver="virtual",
            seconds=self.now_s,
            steps=sum(w.batches for w in by_worker),
            updates=ledger.updates,
            server_s=self.times.server_s,
            ledger=ledger,
            by_worker=by_worker,
            faults=tuple(self.times.faults),
            fault_count=self.times.fault_count,
        )


def simulate_time(
    strategy: Strategy,
    workers: int,
    steps: int,
    cluster: VirtualCluster | None = None,
    *,
    seed: int = 0,
    message_bytes: int = 0,
    faults: tuple[Fault, ...] = (),
    spans: int = SPANS,
    slots: int | None = None,
) -> Simulation:
    """Time, throughput, waiting and staleness of `steps` steps per worker on average, without computing any."""
    if steps < 1:
        raise StrategyError(f"steps={steps} should be at least 1")
    strategy.check(workers)
    batches = steps if strategy.full_pass_per_worker else workers * steps
    return Simulator(
        strategy, workers, cluster or VirtualCluster(), batches=batches, seed=seed, message_bytes=message_bytes,
        faults=faults, spans=spans, slots=slots,
    ).run()  # fmt: skip
