"""Staleness is what the papers say: exactly, where times are equal."""

from __future__ import annotations

import bisect
from collections import defaultdict

import pytest

from paceline.simulation.durations import DurationDistribution
from paceline.simulation.simulation import simulate_time
from paceline.simulation.virtual_cluster import VirtualCluster
from paceline.strategy.presets import PRESETS, find_strategy
from tests.contract.small_training import EQUAL, GAMMA

PARETO = VirtualCluster(compute=DurationDistribution("pareto", (1.5, 1.0)))
ASYNCHRONOUS = ("downpour", "delay-compensated", "staleness-aware", "stale-sync")


@pytest.mark.parametrize("name", ASYNCHRONOUS)
@pytest.mark.parametrize("workers", [1, 2, 7, 30])
def test_with_equal_times_the_staleness_of_m_workers_is_m_minus_1(name, workers):
    ledger = simulate_time(find_strategy(name), workers, 10, EQUAL).distribution.ledger
    expected = {str(first): 1 for first in range(workers - 1)}  # of each one's first push
    expected[str(workers - 1)] = 1 + workers * 9
    assert ledger.staleness == expected


@pytest.mark.parametrize("n", [1, 2, 5, 30])
def test_the_mean_staleness_of_n_softsync_is_n(n):
    """Zhang et al. 2015; with 30 workers, and hardly ever more than 2 n."""
    ledger = simulate_time(find_strategy("softsync", softsync_n=n), 30, 200, GAMMA).distribution.ledger
    assert 0.9 * n <= ledger.mean_staleness <= 1.1 * n
    beyond = sum(count for staleness, count in ledger.staleness.items() if int(staleness) > 2 * n)
    assert beyond < 1e-3 * sum(ledger.staleness.values())


@pytest.mark.parametrize("name", [name for name in PRESETS if PRESETS[name].groups == 1])
def test_synchronous_strategies_know_no_staleness(name):
    assert set(simulate_time(find_strategy(name), 8, 50, GAMMA).distribution.ledger.staleness) == {"0"}


@pytest.mark.parametrize("bound", [0, 1, 3])
def test_nobody_is_further_ahead_of_the_slowest_than_the_bound(bound):
    """Told from the trace: when a step begins, how many had its worker done, and how many the slowest?"""
    found = simulate_time(find_strategy("stale-sync", staleness_bound=bound), 6, 60, PARETO, spans=10_000)
    ends: dict[str, list[float]] = defaultdict(list)
    spans = [span for span in found.trace.spans if span.part == "compute"]
    assert len(spans) == 360
    for span in spans:
        bisect.insort(ends[span.who], span.end_s)
    lead = [
        bisect.bisect_right(ends[span.who], span.start_s)
        - min(bisect.bisect_right(done, span.start_s) for done in ends.values())
        for span in spans
    ]
    assert max(lead) == bound


def test_a_bound_holds_fast_workers_back_and_so_they_wait():
    slow = VirtualCluster(speeds=(1.0, 1.0, 0.25))
    held = simulate_time(find_strategy("stale-sync", staleness_bound=1), 3, 40, slow).distribution
    free = simulate_time(find_strategy("downpour"), 3, 40, slow).distribution
    assert held.waiting_share > 0.4 > 0.05 > free.waiting_share
    assert held.seconds > free.seconds
