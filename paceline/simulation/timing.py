"""Simulates the time of a workload on a virtual cluster, without gradients; its network's size is that of messages."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from time import perf_counter
from typing import Any

from paceline.notebook import NotebookRecord
from paceline.record_fields import BY_NUMBER
from paceline.simulation.links import MessageSizes, message_sizes
from paceline.simulation.simulation import Simulation, simulate_time
from paceline.simulation.virtual_cluster import VirtualCluster
from paceline.step.build import build_network, load_data
from paceline.strategy.distribution import Distribution
from paceline.strategy.strategy import Strategy
from paceline.trace import Trace
from paceline.workload import Workload


@dataclass(frozen=True, repr=False)
class TimeRecord(NotebookRecord):
    workload: Workload
    cluster: dict[str, str]
    """The simulated cluster, as options of the command line."""
    message_bytes: int
    """The parameters that a worker fetches; 0 where the network is not limited."""
    seconds: float
    """Virtual seconds."""
    steps: int
    steps_per_s: float
    updates_per_s: float
    waiting_share: float
    communicating_share: float
    server_share: float
    mean_staleness: float
    staleness_p99: int
    staleness: dict[str, int] = field(metadata=BY_NUMBER)
    """How many payloads had which staleness."""
    wall_s: float
    """Duration of the simulation itself."""
    distribution: Distribution
    trace: Trace = field(default_factory=Trace)
    push_bytes: int = 0
    """The payload that it pushes, as the strategy's exchange encodes it."""

    def facts(self) -> dict[str, Any]:
        found = self.distribution
        return {
            "network": self.workload.network, "strategy": found.strategy.name, "workers": found.workers,
            "virtual seconds": self.seconds, "steps/s": self.steps_per_s, "updates/s": self.updates_per_s,
            "waiting": self.waiting_share, "mean staleness": self.mean_staleness,
        }  # fmt: skip

    @staticmethod
    def of(
        workload: Workload, cluster: dict[str, str], messages: MessageSizes, made: Simulation, wall_s: float
    ) -> TimeRecord:
        found, ledger = made.distribution, made.distribution.ledger
        communicating_s, all_s = found.spent_s["communicating"], sum(found.spent_s.values())
        return TimeRecord(
            workload=workload,
            cluster=cluster,
            message_bytes=messages.fetch_bytes,
            push_bytes=messages.push_bytes,
            seconds=found.seconds,
            steps=found.steps,
            steps_per_s=found.steps_per_s,
            updates_per_s=found.updates_per_s,
            waiting_share=found.waiting_share,
            communicating_share=communicating_s / all_s if all_s else 0.0,
            server_share=found.server_s / found.seconds if found.seconds else 0.0,
            mean_staleness=ledger.mean_staleness,
            staleness_p99=ledger.staleness_up_to(0.99),
            staleness=ledger.staleness,
            wall_s=wall_s,
            distribution=found,
            trace=made.trace,
        )


def time_workload(
    workload: Workload,
    strategy: Strategy,
    workers: int,
    steps: int,
    cluster: VirtualCluster,
    words: dict[str, str],
    *,
    cache: Path | None = None,
) -> TimeRecord:
    """`steps` per worker on average; `words` say what the cluster is like, for the record."""
    limited = cluster.network is not None and cluster.network.bandwidth < math.inf
    size = message_bytes(workload, cache) if limited else 0
    start_s = perf_counter()
    made = simulate_time(strategy, workers, steps, cluster, seed=workload.seed, message_bytes=size)
    return TimeRecord.of(workload, words, message_sizes(strategy, size), made, perf_counter() - start_s)


def message_bytes(workload: Workload, cache: Path | None = None) -> int:
    """The size of what a worker fetches: parameters and buffers of floating point numbers."""
    network = build_network(workload, load_data(workload, cache))
    tensors = chain((p for p in network.parameters() if p.requires_grad), network.buffers())
    return sum(t.numel() * t.element_size() for t in tensors if t.is_floating_point())
