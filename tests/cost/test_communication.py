"""Closed forms of communication, by hand and against the virtual driver."""

from __future__ import annotations

import math

import pytest

from paceline.cluster import Link
from paceline.cost.communication import (
    BUCKET_BYTES,
    ParameterServer,
    all_reduce_s,
    copy_s,
    data_wait_s,
    exposed_exchange_s,
    feed_s,
    nested_all_reduce_s,
    ring_all_reduce_s,
    tree_all_reduce_s,
)
from paceline.errors import InputError
from paceline.simulation.durations import DurationDistribution
from paceline.simulation.simulation import simulate_time
from paceline.simulation.virtual_cluster import Network, VirtualCluster
from paceline.strategy.presets import find_strategy

LINK = Link("link", 0.001, 1000.0)


def test_a_ring_takes_two_rounds_of_n_minus_one_parts():
    assert ring_all_reduce_s(400, 4, LINK) == pytest.approx(2 * 3 * (0.001 + 0.1))
    assert ring_all_reduce_s(400, 1, LINK) == 0.0


def test_a_large_ring_moves_twice_the_message_and_pays_latency_per_member():
    free = Link("free", 0.0, 1000.0)
    assert ring_all_reduce_s(400, 10_000, free) == pytest.approx(2 * 400 / 1000, rel=1e-3)
    assert ring_all_reduce_s(0, 100, LINK) == pytest.approx(2 * 99 * 0.001)


@pytest.mark.parametrize(("members", "rounds"), [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (1024, 10)])
def test_a_tree_takes_two_times_log_n_messages(members, rounds):
    assert tree_all_reduce_s(400, members, LINK) == pytest.approx(2 * rounds * 0.401)


def test_small_messages_take_the_tree_and_large_ones_the_ring():
    assert all_reduce_s(1, 64, LINK) == tree_all_reduce_s(1, 64, LINK) < ring_all_reduce_s(1, 64, LINK)
    assert all_reduce_s(1e6, 64, LINK) == ring_all_reduce_s(1e6, 64, LINK) < tree_all_reduce_s(1e6, 64, LINK)


def test_a_nested_all_reduce_is_one_inside_and_one_between():
    inside = Link("inside", 0.0, 1e5)
    found = nested_all_reduce_s(400, machines=3, devices=8, inside=inside, between=LINK)
    assert found == pytest.approx(all_reduce_s(400, 8, inside) + all_reduce_s(400, 3, LINK))
    assert nested_all_reduce_s(400, 1, 8, inside, LINK) == all_reduce_s(400, 8, inside)


def test_copies_share_a_bus_or_do_not():
    assert copy_s(500, LINK, 4) == pytest.approx(2.001)
    assert copy_s(500, Link("own", 0.001, 1000.0, shared=False), 4) == pytest.approx(0.501)


def test_a_step_waits_for_loading_that_prefetching_does_not_hide():
    fed_s = feed_s(300, LINK, readers=2)
    assert fed_s == pytest.approx(0.601)
    assert data_wait_s(fed_s, 0.5) == pytest.approx(0.101)
    assert data_wait_s(fed_s, 0.7) == 0.0
    assert data_wait_s(fed_s, 0.7, prefetch=False) == fed_s


def test_a_worker_alone_takes_its_chain():
    server = ParameterServer(1, 1.0, 100, LINK, server_s=0.02)
    assert server.chain_s == pytest.approx(0.002 + 0.1 + 1.0 + 0.1 + 0.001 + 0.02)
    assert server.cycle_s() == server.random_cycle_s() == server.synchronous_cycle_s() == server.chain_s
    assert server.server_share() == pytest.approx(0.02 / server.chain_s)


def test_many_workers_are_limited_by_the_bottleneck():
    server = ParameterServer(32, 1.0, 100, LINK, server_s=0.02)
    assert server.cycle_s() == pytest.approx(3.2) and server.steps_per_s() == pytest.approx(10)
    assert server.random_cycle_s() >= server.cycle_s()


def test_low_utilisation_waits_as_in_m_d_1():
    """Many workers that seldom come are a Poisson stream; its wait is ρ s / (2 (1 - ρ))."""
    free = Link("free", 0.0, 1e12, shared=False)
    server = ParameterServer(2000, 1000.0, 0, free, server_s=0.3)
    busy = 0.3 * 2000 / server.random_cycle_s()
    assert server.random_cycle_s() - server.chain_s == pytest.approx(busy * 0.3 / (2 * (1 - busy)), rel=0.01)


def simulated_cycle_s(strategy: str, server: ParameterServer, compute: DurationDistribution, steps: int) -> float:
    network = Network(server.link.latency_s, server.link.bandwidth, server.link.shared)
    served = DurationDistribution("constant", (server.server_s,)) if server.server_s else None
    cluster = VirtualCluster(compute=compute, server=served, network=network)
    size = int(server.message_bytes)
    found = simulate_time(find_strategy(strategy), server.workers, steps, cluster, message_bytes=size)
    return found.distribution.seconds / steps


CASES = [(1.0, 100, 0.02, 0.01), (1.0, 20, 0.1, 0.0), (0.2, 100, 0.03, 0.005), (0.5, 32, 0.2, 0.01)]


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(("compute_s", "size_bytes", "server_s", "latency_s"), CASES)
@pytest.mark.parametrize("workers", [1, 2, 4, 16])
def test_equal_steps_take_as_long_as_in_the_virtual_driver(workers, compute_s, size_bytes, server_s, latency_s, shared):
    """Asynchronous ones but for the beginning and the end; synchronous ones to the last digit."""
    link = Link("link", latency_s, 1000.0, shared)
    server = ParameterServer(workers, compute_s, size_bytes, link, server_s)
    overlapping = ParameterServer(workers, compute_s, size_bytes, link, server_s, overlap=True)
    compute = DurationDistribution("constant", (compute_s,))
    assert simulated_cycle_s("delay-compensated", server, compute, 200) == pytest.approx(server.cycle_s(), rel=0.006)
    assert simulated_cycle_s("downpour", overlapping, compute, 200) == pytest.approx(overlapping.cycle_s(), rel=0.006)
    assert simulated_cycle_s("sync", server, compute, 5) == pytest.approx(server.synchronous_cycle_s(), rel=1e-9)


@pytest.mark.parametrize(("compute_s", "size_bytes", "server_s", "latency_s"), CASES)
@pytest.mark.parametrize("workers", [2, 4, 16])
def test_varying_steps_queue_about_as_long_as_in_the_virtual_driver(
    workers, compute_s, size_bytes, server_s, latency_s
):
    server = ParameterServer(workers, compute_s, size_bytes, Link("link", latency_s, 1000.0), server_s)
    exponential = simulated_cycle_s("delay-compensated", server, DurationDistribution("gamma", (1.0, compute_s)), 600)
    assert exponential == pytest.approx(server.random_cycle_s(), rel=0.10)
    narrow = simulated_cycle_s(
        "delay-compensated", server, DurationDistribution("gamma", (100.0, compute_s / 100)), 200
    )
    assert server.cycle_s() * 0.995 <= narrow <= server.random_cycle_s() * 1.01


@pytest.mark.parametrize(
    "call",
    [
        lambda: ring_all_reduce_s(-1, 2, LINK),
        lambda: ring_all_reduce_s(1, 0, LINK),
        lambda: tree_all_reduce_s(math.nan, 2, LINK),
        lambda: copy_s(1, LINK, 1.5),  # type: ignore[arg-type]
        lambda: ParameterServer(0, 1.0, 1, LINK),
        lambda: ParameterServer(1, -1.0, 1, LINK),
        lambda: ParameterServer(1, 1.0, 1, LINK, server_s=math.inf),
    ],
)
def test_wrong_numbers_are_refused(call):
    with pytest.raises(InputError):
        call()


def test_nothing_to_do_takes_no_time():
    nothing = ParameterServer(3, 0.0, 0, Link("free", 0.0, 1.0))
    assert nothing.cycle_s() == nothing.random_cycle_s() == nothing.server_share() == 0.0
    assert nothing.steps_per_s() == math.inf


def test_buckets_are_exchanged_while_the_backward_pass_computes():
    """e + (n - 1) max(0, e - t / n) for n buckets of e seconds and a backward pass of t."""
    sizes = []

    def exchange_s(size_bytes: int) -> float:
        sizes.append(size_bytes)
        return 3.0

    assert exposed_exchange_s(exchange_s, 4 * BUCKET_BYTES, 40.0) == 3.0, "all but the last are hidden"
    assert exposed_exchange_s(exchange_s, 4 * BUCKET_BYTES, 8.0) == 3.0 + 3 * (3.0 - 8.0 / 4)
    assert exposed_exchange_s(exchange_s, 4 * BUCKET_BYTES, 0.0) == 12.0
    assert set(sizes) == {BUCKET_BYTES}
