"""What is pushed is as large as the exchange makes it, wherever time is simulated or estimated."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paceline.cluster import Device, DeviceCount, Link, Machine
from paceline.cost.communication import ParameterServer, all_gather_s
from paceline.planning.candidate import Candidate
from paceline.planning.estimate import Computing, estimated_step_s
from paceline.planning.machine_options import MachineOption
from paceline.simulation.links import message_sizes
from paceline.simulation.on_cluster import simulate_on
from paceline.simulation.simulation import simulate_time
from paceline.simulation.virtual_cluster import Network, VirtualCluster
from paceline.strategy.exchange import Exchange
from paceline.strategy.presets import find_strategy
from paceline.strategy.strategy import Strategy
from tests.simulation.test_on_cluster import GPUS, prediction

BYTES = 4_000_000
SLOW = Link("slow", 1e-4, 1e8)
MACHINE = Machine("node", (DeviceCount(Device("card", "gpu"), 1),), vcpus=8, network=SLOW, price_per_hour=1.0)
RARELY = {"fetch_every": 20}
"""Fetching whole parameters in every step would take as long as pushing whole gradients."""


def seconds(strategy: Strategy, workers: int = 4) -> float:
    cluster = VirtualCluster(network=Network(1e-4, 4e5))
    return simulate_time(strategy, workers, 40, cluster, message_bytes=BYTES).distribution.seconds


def on_machines(strategy: Strategy, workers: int = 4, machine: Machine = MACHINE, per_machine: int = 1):
    made = replace(prediction(spread=0.0), iteration_s=1e-3, parameter_bytes=BYTES, device="card", threads=0)
    return simulate_on(made, machine, workers, strategy, network=machine.network, workers_per_machine=per_machine)


def test_compressed_payloads_are_faster_over_a_slow_link():
    whole, compressed = (find_strategy(name, **RARELY) for name in ("delay-compensated", "compressed"))
    assert seconds(compressed) < seconds(whole) / 5
    assert on_machines(compressed).step_s < on_machines(whole).step_s / 5


def test_so_they_are_in_every_step_of_one_worker_but_only_its_push_is_smaller():
    whole, compressed = (find_strategy(name) for name in ("delay-compensated", "compressed"))
    assert seconds(compressed, 1) == pytest.approx(seconds(whole, 1) * (1 + 10 + 0.2) / (1 + 10 + 10), rel=0.01)


def test_a_synchronous_group_gathers_compressed_payloads():
    dense, sparse = on_machines(find_strategy("sync")), on_machines(find_strategy("deep-compression"))
    pushed = message_sizes(find_strategy("deep-compression"), BYTES).push_bytes
    assert dense.step_s - 1e-3 > 5 * (sparse.step_s - 1e-3)
    assert sparse.step_s - 1e-3 == pytest.approx(all_gather_s(pushed, 4, SLOW), rel=0.01)


def test_gathering_by_very_many_is_not_slower_than_adding_up_what_was_decoded():
    many = on_machines(find_strategy("sync", exchange="topk:0.4"), 64)
    assert many.step_s <= on_machines(find_strategy("sync"), 64).step_s * (1 + 1e-9)


def test_machines_with_several_devices_take_it_too():
    for workers, per_machine in ((8, 4), (4, 4)):
        dense = on_machines(find_strategy("mixed"), workers, GPUS, per_machine)
        sparse = on_machines(find_strategy("mixed", exchange="topk:0.01"), workers, GPUS, per_machine)
        assert sparse.step_s < dense.step_s


@pytest.mark.parametrize("name", ["delay-compensated", "compressed", "quantised", "sync", "deep-compression"])
@pytest.mark.parametrize("workers", [2, 8])
def test_the_closed_form_is_near_to_what_is_simulated(name, workers):
    strategy = find_strategy(name)
    computing = Computing(1e-3, 0.0, 0.0, BYTES)
    place = MachineOption(MACHINE, MACHINE.devices[0].device, 1, 99, SLOW)
    candidate = Candidate("node", "card", workers, 1, strategy, 8, "float32")
    assert estimated_step_s(candidate, place, computing) == pytest.approx(
        on_machines(strategy, workers).step_s, rel=0.08
    )


@pytest.mark.parametrize("push_bytes", [4, 400, 40_000])
def test_a_server_s_cycle_with_payloads_of_another_size(push_bytes):
    """Against the virtual driver, where a payload has as many numbers as its exchange says."""
    strategy = Strategy("own", groups=None, exchange=f"{__name__}:Sized:{push_bytes // 4}")
    link = Link("link", 0.01, 1e4)
    for workers in (1, 4):
        server = ParameterServer(workers, 0.5, 400, link, push_bytes=push_bytes)
        network = Network(link.latency_s, link.bandwidth)
        cluster = VirtualCluster(compute=lambda worker, number: 0.5, network=network)
        found = simulate_time(strategy, workers, 200, cluster, message_bytes=400).distribution
        assert found.seconds / 200 == pytest.approx(server.cycle_s(), rel=0.01)


class Sized(Exchange):
    def __init__(self, numbers: str) -> None:
        self.numbers = int(numbers)

    def payload_size(self, parameters: int) -> int:
        return self.numbers
