"""A strategy on machines that need not exist: by hand, against closed forms, and a published scaling."""

from __future__ import annotations

import math
from dataclasses import replace
from time import process_time
from typing import Any

import pytest

from paceline.cluster import Device, DeviceCount, Link, Machine, find_link, find_machine
from paceline.cost.communication import BUCKET_BYTES, ParameterServer, nested_all_reduce_s, ring_all_reduce_s
from paceline.cost.prediction import Prediction
from paceline.cost.server_work import server_seconds
from paceline.errors import InputError, StrategyError
from paceline.simulation.durations import DurationDistribution
from paceline.simulation.group_rounds import GroupRounds
from paceline.simulation.on_cluster import ClusterOutcome, simulate_on
from paceline.simulation.simulation import simulate_time
from paceline.simulation.virtual_cluster import VirtualCluster
from paceline.strategy.presets import PRESETS, find_strategy

SLOW = Link("slow", 1e-3, 1e6)
NODE = Machine("node", (DeviceCount(Device("core", "cpu", cores=1)),), network=SLOW, price_per_hour=36.0)
GPUS = Machine(
    "box", (DeviceCount(Device("card", "gpu"), 4),), host_device=find_link("PCIe 4.0 x16"),
    device_device=Link("bridge", 1e-5, 1e8, shared=False), network=SLOW,
)  # fmt: skip


def prediction(seconds: float = 0.1, spread: float = 0.0, **changes: Any) -> Prediction:
    """Of a step, give or take `spread` of it."""
    given: dict[str, Any] = {
        "name": "net", "batch": 10, "device": "core", "step": "flat", "precision": "float32", "threads": 1,
        "iteration_s": seconds, "low_s": seconds * (1 - spread), "high_s": seconds * (1 + spread), "parts_s": {},
        "layers": (), "roofline_s": 0.0, "memory_bytes": 0, "parameter_bytes": 1000, "samples": 10_000, "basis": "",
    }  # fmt: skip
    return Prediction(**{**given, **changes})


def outcome(strategy: str, workers: int, machine: Machine = NODE, **options: Any) -> ClusterOutcome:
    changes = {"full_pass_per_worker": options.pop("full_pass_per_worker", False), **options.pop("changes", {})}
    made = options.pop("of", prediction())
    return simulate_on(made, machine, workers, find_strategy(strategy, **changes), network=machine.network, **options)


# A published scaling: 784-64-64-10, each worker with a pass of its own over 55,000 samples, one node the server


def published(spread: float = 0.1) -> Prediction:
    return prediction(4.1e-3, spread, batch=64, device="n1 vCPU", parameter_bytes=4 * 55_050, samples=55_000)


def growth(machine: str, strategy: str, **changes: Any) -> float:
    epochs = [
        outcome(strategy, workers, find_machine(machine), of=published(), full_pass_per_worker=True, **changes).epoch_s
        for workers in (3, 7, 11)
    ]
    assert all(3.5 < epoch_s < 4.1 for epoch_s in epochs[:1])
    return max(epochs) / epochs[0] - 1


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("machine", ["n1-standard-8 2017", "n1-highmem-16 2017"])
@pytest.mark.parametrize("strategy", ["downpour", "delay-compensated"])
def test_an_epoch_takes_hardly_longer_with_11_workers_than_with_3(strategy, machine, seed):
    """Published: 0.8 % and 1.4 % longer."""
    assert growth(machine, strategy, seed=seed) <= 0.015


@pytest.mark.parametrize("strategy", ["downpour", "delay-compensated"])
def test_the_smallest_machine_s_network_carries_that_only_if_less_is_exchanged(strategy):
    """2 Gb/s: 11 messages of 220 kB take 9.7 ms, a step 4.1 ms. Every tenth step they find the link free."""
    name = "n1-standard-1 2017"
    full = outcome(strategy, 11, find_machine(name), of=published(), full_pass_per_worker=True)
    assert full.bound == "network" and full.efficiency < 0.5
    assert full.step_s == pytest.approx(11 * 220_200 / 0.25e9, rel=0.01)
    assert growth(name, strategy, changes={"fetch_every": 10, "push_every": 10}) <= 0.015


# One worker, and synchronous ones


@pytest.mark.parametrize("strategy", ["sync", "towers", "local-sgd"])
def test_one_worker_takes_what_was_predicted(strategy):
    found = outcome(strategy, 1)
    assert (found.step_s, found.efficiency, found.machines) == (pytest.approx(0.1), pytest.approx(1.0), 1)
    assert found.samples_per_s == pytest.approx(100) and found.epoch_s == pytest.approx(100)
    assert found.money_per_epoch == pytest.approx(1.0)
    assert (found.waiting_share, found.communication_share, found.staleness_mean, found.bound) == (0, 0, 0, "compute")


def test_a_synchronous_step_is_a_step_and_an_all_reduce():
    found = outcome("sync", 4)
    exchange_s = ring_all_reduce_s(1000, 4, SLOW)
    exchange_s = min(exchange_s, 2 * 2 * (1e-3 + 1e-3))  # or a tree
    assert found.step_s == pytest.approx(0.1 + exchange_s)
    assert found.communication_share == pytest.approx(exchange_s / found.step_s)
    assert found.machines == 4 and found.server_share == 0


def test_inside_a_machine_and_then_between_machines():
    found = outcome("sync", 8, GPUS, of=prediction(device="card", threads=0), workers_per_machine=4)
    exchange_s = nested_all_reduce_s(1000, 2, 4, GPUS.link("device_device"), SLOW)
    assert found.machines == 2
    assert found.step_s == pytest.approx(0.1 + exchange_s)


def test_a_bus_is_shared_by_all_that_send():
    bus = Machine("bus", GPUS.devices, host_device=Link("bus", 0.0, 1e6))
    found = outcome("sync", 4, bus, of=prediction(device="card", threads=0), workers_per_machine=4)
    assert found.step_s == pytest.approx(0.1 + 2 * 3 * 1000 / 4 / (1e6 / 4))


def test_who_waits_for_each_other_waits_for_the_slowest():
    few, many = (outcome("sync", n, of=prediction(spread=0.08, samples=10**6)) for n in (4, 64))
    assert 0.03 < few.waiting_share < many.waiting_share < 0.12
    assert many.efficiency < few.efficiency < 1


def test_rounds_of_a_group_take_what_the_virtual_driver_takes():
    for strategy, backup_workers in (("sync", 0), ("backup", 2)):
        rounds = GroupRounds(8, 1, 1.0, 0.1, 0.0, backup_workers=backup_workers)
        mine = sum(rounds(0, number) for number in range(2000)) / 2000
        changes = {"backup_workers": backup_workers} if backup_workers else {}
        cluster = VirtualCluster(compute=DurationDistribution("gamma", (100.0, 0.01)))
        driven = simulate_time(find_strategy(strategy, **changes), 8, 500, cluster, spans=0).distribution
        assert mine == pytest.approx(driven.seconds / 500, rel=0.01)


def test_steps_that_are_dropped_do_not_count():
    found = outcome("backup", 5, of=prediction(spread=0.08))
    assert found.samples_per_s == pytest.approx(4 * 10 / found.step_s)
    assert found.waiting_share < outcome("sync", 5, of=prediction(spread=0.08)).waiting_share


def test_who_exchanges_rarely_pays_rarely():
    often, rarely = (outcome("local-sgd", 4, changes={"push_every": n, "fetch_every": n}) for n in (1, 50))
    assert rarely.step_s - 0.1 == pytest.approx((often.step_s - 0.1) / 50, rel=1e-6)


def test_an_all_reduce_can_begin_during_the_backward_pass():
    """Four buckets: the last is never hidden, each other one for as long as a quarter of the backward pass takes."""
    size = 4 * BUCKET_BYTES
    link = Link("link", 0.0, BUCKET_BYTES, shared=False)
    machine = Machine("node", NODE.devices, network=link)
    made = prediction(10.0, parts_s={"backward": 3.0}, parameter_bytes=size)
    plain, hidden = (
        simulate_on(made, machine, 2, find_strategy("sync"), network=link, overlap_backward=on) for on in (False, True)
    )
    each_s = ring_all_reduce_s(BUCKET_BYTES, 2, link)
    assert plain.step_s == pytest.approx(10.0 + 4 * each_s)
    assert hidden.step_s == pytest.approx(10.0 + each_s + 3 * max(0.0, each_s - 3.0 / 4))
    roomy = simulate_on(
        replace(made, parts_s={"backward": 9.0}), machine, 2, find_strategy("sync"), network=link, overlap_backward=True
    )
    assert roomy.step_s == pytest.approx(10.0 + each_s), "all but the last bucket is hidden"


def test_nothing_can_hide_behind_a_backward_pass_that_is_not_known():
    with pytest.raises(InputError, match="the time of the backward pass of net is not known"):
        outcome("sync", 2, overlap_backward=True)


def test_who_exchanges_parameters_hides_nothing():
    made = prediction(10.0, parts_s={"backward": 3.0}, parameter_bytes=10**6)
    both = [outcome("local-sgd", 2, of=made, overlap_backward=on).step_s for on in (False, True)]
    assert both[0] == both[1]


# With a server


@pytest.mark.parametrize("workers", [1, 2, 5, 20])
@pytest.mark.parametrize("strategy", ["delay-compensated", "downpour"])
def test_equal_steps_take_what_the_closed_form_says(strategy, workers):
    link = Link("link", 2e-3, 1e5)
    rule = find_strategy(strategy)
    machine = Machine("node", NODE.devices, network=link)
    found = simulate_on(prediction(), machine, workers, rule, network=link, workers_per_machine=1, server_s=3e-3)
    expected = ParameterServer(workers, 0.1, 1000, link, 3e-3, rule.overlap)
    if workers > 1:  # one alone has its server beside it
        assert found.step_s == pytest.approx(expected.cycle_s(), rel=1e-3)
        assert found.server_share == pytest.approx(expected.server_share(), rel=0.01)
        assert found.machines == workers + 1


def test_what_is_busy_all_the_time_is_what_binds():
    assert outcome("delay-compensated", 8, server_s=0.05).bound == "server"
    assert outcome("downpour", 8, server_s=0.05).bound == "server"
    assert outcome("downpour", 8, of=prediction(parameter_bytes=50_000)).bound == "network"
    assert outcome("downpour", 2).bound == "compute"
    assert outcome("sync", 8, of=prediction(parameter_bytes=500_000)).bound == "network"


def test_staleness_is_about_the_number_of_others():
    assert outcome("delay-compensated", 8, of=prediction(spread=0.08)).staleness_mean == pytest.approx(7, abs=0.3)
    assert outcome("mixed", 8, changes={"groups": 4}).staleness_mean == pytest.approx(3, abs=0.3)
    assert outcome("downpour", 8, server_s=0.1).staleness_mean <= 2 * 8  # nobody has more than two under way


def test_groups_send_one_message_each():
    """16 workers in 4 groups: the server's link has a quarter of the messages."""
    alone, mixed = outcome("delay-compensated", 16), outcome("mixed", 16, changes={"groups": 4})
    assert outcome("delay-compensated", 16, of=prediction(parameter_bytes=20_000)).bound == "network"
    assert outcome("mixed", 16, of=prediction(parameter_bytes=20_000), changes={"groups": 4}).machines == 17
    assert mixed.server_share < alone.server_share / 3


def test_the_update_is_the_server_s():
    whole = outcome("delay-compensated", 4, of=prediction(), server_s=0.0)
    without = outcome("delay-compensated", 4, of=prediction(parts_s={"update": 0.03}), server_s=0.0)
    assert whole.step_s - without.step_s == pytest.approx(0.03, rel=0.01)
    assert outcome("sync", 4, of=prediction(parts_s={"update": 0.03})).step_s == outcome("sync", 4).step_s


@pytest.mark.parametrize(("correction", "measured_s"), [("none", 36e-6), ("constant:2", 61e-6), ("adaptive:2", 109e-6)])
def test_an_update_takes_about_what_was_measured(correction, measured_s):
    rule = find_strategy("delay-compensated", correction=correction)
    assert server_seconds(rule, 4 * 55_050, NODE, "momentum") == pytest.approx(measured_s, rel=0.15)


def test_large_updates_are_paced_by_memory():
    slow = Machine("old", (DeviceCount(Device("core", "cpu", memory_bandwidth=2e9)),))
    rule = find_strategy("downpour")
    assert server_seconds(rule, 10**8, slow, "sgd") == pytest.approx(10**8 * (3 / 60e9 + 3 / 2e9), rel=0.01)
    assert server_seconds(rule, 10**8, slow, "adam") > 2 * server_seconds(rule, 10**8, slow, "sgd")
    assert server_seconds(rule, 10**8, slow, "sgd", payloads=4) < server_seconds(rule, 10**8, slow, "sgd")


# Workers of one machine


def here(cores: int, **changes: Any) -> Machine:
    return Machine("here", (DeviceCount(Device("core", "cpu", cores=cores)),), **changes)


def together(strategy: str, workers: int, cores: int, **options: Any) -> ClusterOutcome:
    return outcome(strategy, workers, here(cores), workers_per_machine=workers, **options)


def test_workers_that_want_more_cores_than_there_are_have_their_share():
    roomy, full, short = (together("downpour", n, 4) for n in (2, 3, 8))
    assert roomy.efficiency == pytest.approx(full.efficiency, rel=0.01) and roomy.efficiency > 0.98
    assert short.efficiency == pytest.approx(4 / 8, rel=0.02)
    assert [o.machines for o in (roomy, full, short)] == [1, 1, 1]
    two_threads = together("downpour", 4, 4, of=prediction(threads=2))
    assert two_threads.efficiency == pytest.approx(4 / 8, rel=0.02)


def test_more_workers_than_gpus_share_them():
    found = outcome("sync", 8, GPUS, of=prediction(device="card", threads=0), workers_per_machine=8)
    assert found.efficiency == pytest.approx(0.5, rel=0.01)


@pytest.mark.parametrize(("strategy", "measured"), [("downpour", 3371), ("sync", 2483)])
def test_two_processes_of_a_small_network_are_about_as_fast_as_measured(strategy, measured):
    """dnn on two cores, steps a second of both workers; one process alone makes 2,899."""
    alone = prediction(1 / 2899, batch=64, parameter_bytes=4 * 55_050, conditions={"optimizer": "sgd"})
    assert 2 / together(strategy, 2, 2, of=alone).step_s == pytest.approx(measured, rel=0.15)


# Epochs and money


def test_an_epoch_is_shared_or_everyone_s_own():
    shared, own = (outcome("delay-compensated", 4, full_pass_per_worker=own) for own in (False, True))
    assert own.epoch_s == pytest.approx(1000 * own.step_s)
    assert shared.epoch_s == pytest.approx(own.epoch_s / 4, rel=1e-3)
    assert outcome("sync", 3).epoch_s == pytest.approx(334 * outcome("sync", 3).step_s)


def test_money_is_machines_times_price_times_time():
    found = outcome("delay-compensated", 3)
    assert found.money_per_epoch == pytest.approx(4 * 36.0 * found.epoch_s / 3600) and found.currency == "USD"
    assert outcome("delay-compensated", 3, here(1, network=SLOW)).money_per_epoch is None
    unknown = outcome("sync", 3, of=prediction(samples=0))
    assert unknown.epoch_s == 0 and unknown.money_per_epoch is None and unknown.samples_per_s > 0


# All of it


@pytest.mark.parametrize("name", PRESETS)
def test_every_strategy_can_be_simulated_on_every_machine(name):
    for machine, each in ((NODE, 1), (here(4), 4), (GPUS, 4)):
        made = prediction(spread=0.05, device=machine.devices[0].device.name, threads=int(machine is not GPUS))
        for workers in (2, 4):
            found = simulate_on(
                made, machine, workers, find_strategy(name), network=machine.network, workers_per_machine=each
            )
            assert found.machines >= 1 and 0 < found.efficiency <= 1.0 + 1e-9
            assert 0 <= found.waiting_share + found.communication_share < 1
            assert 0 <= found.server_share <= 1 and found.staleness_mean >= 0
            assert math.isfinite(found.step_s) and found.bound in ("compute", "network", "server", "straggling")


def test_the_same_seed_gives_the_same_outcome():
    a, b, c = (outcome("downpour", 4, of=prediction(spread=0.05), seed=seed) for seed in (1, 1, 2))
    assert a == b != c


def test_twice_as_many_steps_say_the_same():
    for name in ("downpour", "delay-compensated", "mixed", "stale-sync"):
        few, many = (outcome(name, 4, of=prediction(spread=0.05), steps=steps) for steps in (200, 800))
        assert few.step_s == pytest.approx(many.step_s, rel=0.01)


@pytest.mark.parametrize("name", ["sync", "mixed"])
def test_ten_thousand_synchronous_workers_take_a_moment(name):
    began_s = process_time()
    changes = {"groups": 100} if name == "mixed" else {}
    found = outcome(name, 10_000, of=prediction(spread=0.05, samples=10**9), changes=changes)
    assert found.workers == 10_000 and process_time() - began_s < 10


@pytest.mark.parametrize(
    "name", [pytest.param("downpour", marks=pytest.mark.slow), pytest.param("stale-sync", marks=pytest.mark.soak)]
)
def test_ten_thousand_asynchronous_workers_take_seconds(name):
    began_s = process_time()
    found = outcome(name, 10_000, of=prediction(10.0, spread=0.05, samples=10**9))
    assert found.bound == "network" and process_time() - began_s < 30


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"workers": 0}, "workers=0 should be a whole number from 1"),
        ({"of": prediction(0.0)}, "an iteration of 0 s"),
        ({"workers": 2000}, "2000 workers share 1000 batches"),
        ({"machine": here(1)}, "machine 'here' has no network link"),
        ({"strategy": "easgd", "changes": {"push_every": 10**9}}, "steps=4,000,000,000 for 2 workers are more than"),
    ],
)
def test_what_cannot_be_simulated_is_refused(options, words):
    with pytest.raises(InputError, match=words):
        outcome(**{"strategy": "sync", "workers": 2, **options})


def test_groups_must_divide_the_workers():
    with pytest.raises(StrategyError, match="2 groups do not divide 3 workers"):
        outcome("mixed", 3)
