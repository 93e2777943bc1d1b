"""Listing candidates and machine options."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paceline.cluster import Cluster, MachineCount, find_machine, known_machines
from paceline.errors import InputError, StrategyError
from paceline.planning.candidates import STRATEGIES, list_candidates
from paceline.planning.machine_options import find_machine_options, options_of
from paceline.strategy.presets import find_strategy
from paceline.strategy.strategy import Strategy
from tests.planning.invented import WORKLOAD


def lab(count: int, name: str = "p4d.24xlarge") -> Cluster:
    return Cluster("lab", (MachineCount(find_machine(name), count),))


def test_some_devices_of_one_machine_then_all_of_several():
    (place,) = options_of(lab(4)).places
    assert list(place.worker_layouts()) == [(1, 1), (2, 2), (4, 4), (8, 8), (16, 8), (24, 8), (32, 8)]


def test_the_catalogue_has_up_to_sixteen_machines_with_workers():
    (place,) = find_machine_options("g5.xlarge").places
    assert [workers for workers, _ in place.worker_layouts()] == [1, 2, 4, 8, 16]


def test_the_whole_catalogue_but_for_what_has_old_prices():
    found = find_machine_options("catalogue")
    names = {place.machine.name for place in found.places}
    assert names == {machine.name for machine in known_machines() if "2017" not in machine.name}
    assert found.excluded == {"machines with prices from before 2021": 6}
    assert found.currency == "USD"


def test_workers_are_on_gpus_where_there_are_any():
    kinds = {
        place.machine.name: place.device.kind
        for place in find_machine_options("n1-standard-4 + 1 T4,c6i.32xlarge").places
    }
    assert kinds == {"n1-standard-4 + 1 T4": "gpu", "c6i.32xlarge": "cpu"}


def test_a_machine_by_a_wrong_name():
    with pytest.raises(InputError, match=r"no machine 'p4d.24xlage': did you mean p4d.24xlarge"):
        find_machine_options("p4d.24xlage")


@pytest.mark.parametrize("words", ["", ",", " , "])
def test_no_name_at_all(words):
    with pytest.raises(InputError, match=r"names no machine: give some, a cluster.toml, or catalogue for all"):
        find_machine_options(words)


def test_a_machine_named_twice_is_there_once():
    assert len(find_machine_options("g5.xlarge, g6.xlarge,G5.xlarge").places) == 2


def test_skypilot_s_file_is_no_cluster(tmp_path):
    with pytest.raises(InputError, match=r"vms.csv is not a cluster.toml; SkyPilot's files have no links"):
        find_machine_options(str(tmp_path / "vms.csv"))


def test_machines_that_cost_nothing_have_a_price():
    machine = replace(find_machine("g5.xlarge"), price_per_hour=0.0)
    assert options_of(Cluster("lab", (MachineCount(machine, 2),))).currency == "USD"


def test_a_spot_price_alone_is_a_price():
    machine = replace(find_machine("g5.xlarge"), price_per_hour=None, spot_price_per_hour=0.4, currency="EUR")
    assert options_of(Cluster("lab", (MachineCount(machine),)), spot=True).currency == "EUR"


def test_without_prices_machine_hours_are_counted():
    machine = replace(find_machine("g5.xlarge"), price_per_hour=None)
    assert options_of(Cluster("lab", (MachineCount(machine, 2),))).currency == "machine hours"


def test_what_has_no_price_is_left_out_where_others_have_one():
    machine = replace(find_machine("g5.xlarge"), name="own", price_per_hour=None)
    found = options_of(Cluster("lab", (MachineCount(machine), MachineCount(find_machine("g6.xlarge")))))
    assert [place.machine.name for place in found.places] == ["g6.xlarge"]
    assert found.excluded == {"machines without a price": 1}


def test_spot_prices_are_of_those_that_have_one():
    found = find_machine_options("catalogue", spot=True)
    assert {place.machine.name for place in found.places} == {"p4de.24xlarge", "p5.48xlarge"}
    with pytest.raises(InputError, match=r"no machine of g5.xlarge has a spot price"):
        find_machine_options("g5.xlarge", spot=True)


def test_every_strategy_batch_and_precision_is_among_them():
    listed = list_candidates(WORKLOAD, options_of(lab(3)), 60_000)
    assert {c.strategy.name for c in listed.candidates} == set(STRATEGIES)
    assert {c.batch for c in listed.candidates} == {32, 64, 128, 256}
    assert {c.precision for c in listed.candidates} == {"float32", "tf32", "bfloat16"}
    assert len(set(listed.candidates)) == len(listed.candidates)
    for candidate in listed.candidates:
        candidate.strategy.check(candidate.workers, -(-60_000 // candidate.batch))


def test_a_precision_is_proposed_only_where_the_device_has_it():
    listed = list_candidates(WORKLOAD, find_machine_options("g4dn.xlarge"), 60_000)
    assert {c.precision for c in listed.candidates} == {"float32"}, "a T4 has neither tf32 nor bfloat16"
    asked_for = replace(WORKLOAD, precision="bfloat16")
    assert list_candidates(asked_for, find_machine_options("g4dn.xlarge"), 60_000).candidates == ()


def test_one_worker_needs_no_strategy():
    alone = [c for c in list_candidates(WORKLOAD, options_of(lab(1)), 60_000).candidates if c.workers == 1]
    assert {c.strategy.name for c in alone} == {"sync"}


def test_groups_are_machines_where_these_have_several_workers():
    mixed = [c for c in list_candidates(WORKLOAD, options_of(lab(5)), 60_000).candidates if c.strategy.name == "mixed"]
    assert {(c.workers, c.strategy.groups) for c in mixed} == {(4, 2), (8, 2), (16, 2), (32, 4)}


def test_a_server_of_its_own_needs_a_machine():
    listed = list_candidates(WORKLOAD, options_of(lab(2)), 60_000)
    assert listed.excluded["leave no machine for the server"] > 0
    assert {c.strategy.name for c in listed.candidates if c.machines == 2} == {"sync", "backup", "local-sgd", "diloco"}


def test_more_workers_than_batches_are_left_out():
    listed = list_candidates(WORKLOAD, options_of(lab(3)), 500)
    assert listed.excluded["have more workers than an epoch has batches"] > 0
    assert all(c.workers * c.batch < 500 + c.batch * c.workers for c in listed.candidates)
    assert all(c.workers <= -(-500 // c.batch) for c in listed.candidates)


def test_an_unknown_strategy():
    with pytest.raises(StrategyError, match="no strategy 'synch': did you mean sync"):
        list_candidates(WORKLOAD, options_of(lab(1)), 500, ("synch",))


def test_samples_in_flight_are_everything_between_fetch_and_push():
    listed = list_candidates(WORKLOAD, options_of(lab(1)), 60_000, ("sync", "downpour", "local-sgd", "diloco"))
    found = {(c.strategy.name, c.workers, c.batch): c.samples_in_flight for c in listed.candidates}
    assert found["sync", 1, 64] == 64
    assert found["sync", 8, 64] == found["downpour", 8, 64] == 512
    assert found["local-sgd", 8, 64] == 512 * 10 and found["diloco", 8, 64] == 512 * 50


def test_a_custom_strategy_is_a_candidate_by_its_fields():
    custom = Strategy("mine", groups=None, exchange="topk:0.1", fetch_every=4)
    listed = list_candidates(WORKLOAD, options_of(lab(1)), 60_000, ("sync", custom))
    assert {c.strategy for c in listed.candidates if c.workers > 1} == {find_strategy("sync"), custom}
    grouped = list_candidates(WORKLOAD, options_of(lab(1)), 60_000, (Strategy("mine", groups=2, exchange="int8"),))
    assert {(c.workers, c.strategy.groups) for c in grouped.candidates if c.workers > 1} == {(4, 2), (8, 2)}
