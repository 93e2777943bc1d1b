"""Simulates a strategy on a virtual cluster: with gradients for convergence, without them for time alone."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from paceline.errors import StrategyError
from paceline.simulation.virtual_cluster import VirtualCluster
from paceline.simulation.virtual_driver import VirtualDriver
from paceline.simulation.worker_times import SPANS
from paceline.strategy.distribution import Distribution
from paceline.strategy.event_record import EventRecord
from paceline.strategy.strategy import Strategy
from paceline.testing.faults import Fault
from paceline.trace import Trace

MOST_STEPS = 100_000_000
"""Of all workers together; each takes some 40 bytes and 10 µs."""


@dataclass(frozen=True, eq=False)
class Simulation:
    """The result. There are parameters if gradients were computed, and events if they were recorded."""

    distribution: Distribution
    trace: Trace
    parameters: Tensor | None = None
    events: EventRecord | None = None


def distribution_of(driver: VirtualDriver) -> Distribution:
    """How a simulation is distributed, so far."""
    ledger, made = driver.coordinator.ledger.summary(), driver.gradients
    by_worker = driver.times.records(made.scores, made.accuracies) if made else driver.times.records({})
    return Distribution(
        strategy=driver.strategy,
        workers=driver.workers,
        driver="virtual",
        seconds=driver.now_s,
        steps=sum(w.batches for w in by_worker),
        updates=ledger.updates,
        server_s=driver.times.server_s,
        ledger=ledger,
        by_worker=by_worker,
        faults=tuple(driver.times.faults),
        fault_count=driver.times.fault_count,
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
    if steps * workers > MOST_STEPS:
        raise StrategyError(
            f"steps={steps:,} for {workers:,} workers are more than {MOST_STEPS:,} in all: simulate fewer, rates and "
            "shares do not change with their number; of a strategy that exchanges rarely at least four exchanges are "
            "simulated"
        )
    batches = steps if strategy.full_pass_per_worker else workers * steps
    return simulated(
        VirtualDriver(
            strategy, workers, cluster or VirtualCluster(), batches=batches, seed=seed, message_bytes=message_bytes,
            faults=faults, spans=spans, slots=slots,
        )
    )  # fmt: skip


def simulated(driver: VirtualDriver) -> Simulation:
    """Runs a simulation from its beginning to its end."""
    driver.run()
    made = driver.gradients
    events = made.events() if made is not None and made.recording else None
    trace = driver.times.trace(driver.now_s)
    return Simulation(distribution_of(driver), trace, made.current if made is not None else None, events)
