"""The simulated Ray driver: a group over several machines averages in parts, and exchanges them with the server."""

from __future__ import annotations

import pytest

from paceline.cluster import Device, DeviceCount, Link, Machine
from paceline.cost.communication import ParameterServer, divided_average_s
from paceline.simulation.on_cluster import simulate_on
from paceline.strategy.group_averaging import AVERAGED_FROM_BYTES
from paceline.strategy.presets import find_strategy
from tests.simulation.test_on_cluster import prediction

SLOW = Link("slow", 5e-3, 125e6)
NODE = Machine("node", (DeviceCount(Device("core", "cpu", cores=4)),), network=SLOW)
BIG, SMALL = 24_000_000, AVERAGED_FROM_BYTES - 4
SERVER_S = 0.05


def outcome(strategy, size_bytes, workers=4, each=2, driver="ray"):
    made = prediction(0.2, parameter_bytes=size_bytes)
    return simulate_on(
        made, NODE, workers, find_strategy(strategy), network=SLOW, workers_per_machine=each, server_s=SERVER_S,
        driver=driver,
    )  # fmt: skip


@pytest.mark.parametrize("each", [1, 2])
def test_one_group_averages_and_then_exchanges_one_vector_with_the_server(each):
    average_s = divided_average_s(BIG, 4 // each, each, SLOW, SLOW)
    chain_s = ParameterServer(1, 0.2 + average_s, BIG, SLOW, SERVER_S).chain_s
    found = outcome("sync", BIG, each=each)
    assert found.step_s == pytest.approx(chain_s)
    assert found.machines == 4 // each + 1  # the server has one of its own


def test_small_payloads_are_averaged_at_the_server():
    of_four = ParameterServer(4, 0.2, SMALL, SLOW, SERVER_S).synchronous_cycle_s()
    assert outcome("sync", SMALL).step_s == pytest.approx(of_four)
    assert outcome("sync", AVERAGED_FROM_BYTES).step_s != pytest.approx(of_four, rel=0.02)


def test_groups_on_one_machine_each_average_there():
    """Then both exchange with the server, whose link they share."""
    found = outcome("mixed", BIG).step_s
    assert found < outcome("sync", BIG).step_s
    assert found > ParameterServer(2, 0.2, BIG, SLOW, SERVER_S).cycle_s()


def test_compressed_payloads_and_groups_of_one_go_to_the_server_one_by_one():
    by_server = outcome("deep-compression", BIG)
    assert by_server.step_s > outcome("deep-compression", BIG, driver="").step_s
    assert outcome("downpour", BIG).step_s == outcome("downpour", BIG, driver="").step_s


def test_workers_of_one_machine_are_not_affected():
    assert outcome("sync", BIG, workers=2, driver="ray") == outcome("sync", BIG, workers=2, driver="")


def test_the_all_to_all_by_hand():
    """Two machines with two members each: a machine sends two members' halves, 24 MB, and the ring three quarters."""
    expected = (5e-3 + BIG / 125e6) + 3 * (5e-3 + BIG / 4 / 125e6)
    assert divided_average_s(BIG, 2, 2, SLOW, SLOW) == pytest.approx(expected)


@pytest.mark.parametrize(("batches", "steps", "rounds"), [(16, 4, 1), (32, 8, 1), (40, 10, 2)])
def test_an_epoch_ends_with_an_exchange_after_however_few_local_steps(batches, steps, rounds):
    """Four workers with eight steps per round; the exchange of 24 MB takes as long as some steps."""
    made = prediction(0.2, parameter_bytes=BIG, samples=10 * batches)
    strategy = find_strategy("diloco", fetch_every=8, push_every=8)
    found = simulate_on(made, NODE, 4, strategy, network=SLOW, workers_per_machine=2, server_s=SERVER_S, driver="ray")
    exchange_s = 8 * found.step_s - 8 * 0.2
    assert exchange_s > 0.5
    assert found.epoch_s == pytest.approx(steps * 0.2 + rounds * exchange_s, rel=0.01)


def test_steps_hide_the_push_of_a_fragment_and_its_update_and_the_fetch_is_waited_for():
    """At the server: four workers push and fetch a fourth of 24 MB in 25 steps of 0.2 s, 5 of which it may take."""
    strategy = find_strategy("streaming-diloco")
    found = outcome("streaming-diloco", BIG)
    assert found.step_s == pytest.approx(0.2 + (2 * 5e-3 + BIG / 4 / 125e6) / 25, rel=1e-3)
    whole = find_strategy("diloco", fetch_every=100, push_every=100)
    assert strategy.push_every * strategy.fragments == whole.push_every
    slow = simulate_on(
        prediction(0.2, parameter_bytes=BIG), NODE, 4, whole, network=SLOW, workers_per_machine=2, server_s=SERVER_S,
        driver="ray",
    )  # fmt: skip
    assert slow.step_s > 1.01 * found.step_s


@pytest.mark.parametrize("driver", ["", "ray"])
def test_what_is_longer_than_the_overlap_is_waited_for(driver):
    hidden, waited = (
        simulate_on(
            prediction(0.2, parameter_bytes=40 * BIG), NODE, 4, find_strategy("streaming-diloco", overlap_steps=steps),
            network=SLOW, workers_per_machine=2, server_s=SERVER_S, driver=driver,
        ).step_s
        for steps in (20, 1)
    )  # fmt: skip
    assert waited > hidden >= 0.2
