"""A synchronous update waits for all its parts, so it is the same whoever dies; who leaves is not waited for."""

from __future__ import annotations

import pytest
import torch

from paceline.simulation.virtual_cluster import Change, VirtualCluster
from paceline.strategy.presets import find_strategy
from paceline.testing import Fault
from tests.contract.drivers import DRIVERS, train
from tests.contract.small_training import GAMMA, trained, workload
from tests.contract.test_repeating import DYING, with_batch_norm

WORKERS = 4
SYNCHRONOUS = [find_strategy("sync"), find_strategy("towers"), find_strategy("mixed", groups=1)]
KILLS = tuple(Fault("kill", at=at, worker=worker) for at, worker in ((0, 0), (1, 3), (1, 1), (6, 2), (11, 1), (30, 3)))
ALL_AT_ONCE = tuple(Fault("kill", at=17, worker=worker) for worker in range(WORKERS))
SLOW = tuple(Fault("slow", worker=worker, seconds=0.003) for worker in range(2))


@pytest.mark.parametrize("strategy", SYNCHRONOUS, ids=lambda strategy: strategy.name)
@pytest.mark.parametrize("restart_s", [0.0, 0.3, 7.0])
def test_a_synchronous_run_ends_with_the_same_bits_whoever_dies(strategy, restart_s):
    made = {"optimizer": "momentum", "dropout": 0.2, "epochs": 2}
    whole = trained(strategy, WORKERS, **made)
    cluster = VirtualCluster(compute=GAMMA.compute, restart_s=restart_s)
    disturbed = trained(strategy, WORKERS, cluster, faults=(*KILLS, *ALL_AT_ONCE), **made)
    assert disturbed.distribution.ledger.returned >= 10
    assert disturbed.distribution.updates == whole.distribution.updates
    assert torch.equal(disturbed.parameters, whole.parameters)


def test_so_it_does_when_deaths_come_at_any_time_and_messages_take_long():
    made = {"network": f"{with_batch_norm.__module__}:with_batch_norm", "dropout": None, "options": {}}
    disturbed = trained(find_strategy("sync"), WORKERS, DYING, **made)
    assert disturbed.distribution.ledger.returned > 0
    assert torch.equal(disturbed.parameters, trained(find_strategy("sync"), WORKERS, **made).parameters)


def test_so_it_does_with_local_steps_of_an_optimizer_that_keeps_nothing():
    strategy = find_strategy("local-sgd", fetch_every=3, push_every=3)
    disturbed = trained(strategy, WORKERS, faults=KILLS, epochs=2)
    assert disturbed.distribution.ledger.returned > 0
    assert torch.equal(disturbed.parameters, trained(strategy, WORKERS, epochs=2).parameters)


def test_so_it_does_with_real_processes_and_a_server_that_is_killed_too(tmp_path):
    made = workload(batch=16, epochs=4, optimizer="momentum")
    kills = (Fault("kill", 20, 1), Fault("kill", 60), Fault("kill", 61, 0), Fault("kill", 90, 1))
    whole = train("local", made, find_strategy("sync"), 2, tmp_path / "whole")
    disturbed = train("local", made, find_strategy("sync"), 2, tmp_path / "disturbed", faults=(*kills, *SLOW))
    assert disturbed.distribution.fault_count == len(kills)
    assert disturbed.distribution.updates == whole.distribution.updates == 4 * 45
    assert torch.equal(disturbed.parameters, whole.parameters)


def test_both_drivers_end_with_the_same_bits(tmp_path):
    made = workload(batch=16)
    runs = [train(driver, made, find_strategy("sync"), 2, tmp_path / driver) for driver in DRIVERS]
    assert torch.equal(runs[0].parameters, runs[1].parameters)


@pytest.mark.parametrize("name", ["sync", "mixed", "local-sgd"])
def test_what_a_worker_that_leaves_had_in_hand_is_done_in_the_same_round(name):
    """Worker 1 leaves in the middle of the third round, which still has four parts; those after it have three."""
    changes = {"fetch_every": 5, "push_every": 5} if name == "local-sgd" else {}
    cluster = VirtualCluster(changes=(Change(2.5 * changes.get("push_every", 1), 1, "leaves"),))
    found = trained(find_strategy(name, **changes), WORKERS, cluster, record=True)
    ledger = found.distribution.ledger
    assert ledger.applied_by_epoch == (180,) and ledger.returned == changes.get("push_every", 1)
    of_group = [given for update in found.events.updates for given in update.contributions if given.group == 0]
    whole = 2 if name == "mixed" else 4
    assert [len(given.payloads) for given in of_group[:5]] == [whole] * 3 + [whole - 1] * 2


def test_when_a_whole_group_leaves_the_others_do_what_it_had():
    cluster = VirtualCluster(changes=(Change(2.5, 0, "leaves"), Change(2.7, 1, "leaves")))
    found = trained(find_strategy("mixed"), WORKERS, cluster).distribution
    assert found.ledger.applied_by_epoch == (180,) and found.ledger.returned == 2
