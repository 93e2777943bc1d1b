"""Simulates the time of a workload on a virtual cluster: the size of its network is that of the messages."""

from __future__ import annotations

import math
from itertools import chain
from pathlib import Path
from time import perf_counter

from paceline.errors import StrategyError
from paceline.simulation.links import message_sizes
from paceline.simulation.simulation import simulate_time
from paceline.simulation.time_record import TimeRecord
from paceline.simulation.virtual_cluster import VirtualCluster
from paceline.step.build import build_network, load_data
from paceline.strategy.strategy import Strategy
from paceline.workload import Workload

MOST_STEPS = 100_000_000
"""Of all workers together; each takes some 40 bytes and 10 µs."""


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
    check_steps(steps, workers)
    limited = cluster.network is not None and cluster.network.bandwidth < math.inf
    size = message_bytes(workload, cache) if limited else 0
    start_s = perf_counter()
    made = simulate_time(strategy, workers, steps, cluster, seed=workload.seed, message_bytes=size)
    return TimeRecord.of(workload, words, message_sizes(strategy, size), made, perf_counter() - start_s)


def check_steps(steps: int, workers: int) -> None:
    """Refuses what memory could not hold, and nobody would wait for."""
    if steps > 0 and steps * workers > MOST_STEPS:
        raise StrategyError(
            f"steps={steps:,} for {workers:,} workers are more than {MOST_STEPS:,} in all: simulate fewer, "
            "rates and shares do not change with their number"
        )


def message_bytes(workload: Workload, cache: Path | None = None) -> int:
    """The size of what a worker fetches: parameters and buffers of floating point numbers."""
    network = build_network(workload, load_data(workload, cache))
    tensors = chain((p for p in network.parameters() if p.requires_grad), network.buffers())
    return sum(t.numel() * t.element_size() for t in tensors if t.is_floating_point())
