"""Phases of the same epochs are trained in turn by synchronous workers, as one process trains them."""

from __future__ import annotations

import pytest
import torch

from paceline.simulation.replay import replay_run
from paceline.simulation.virtual_cluster import Change, VirtualCluster
from paceline.step.build import assemble, load_data
from paceline.strategy.presets import find_strategy
from paceline.strategy.strategy import Strategy
from paceline.testing import Fault
from paceline.testing.contract import simulate_training
from paceline.training.checkpoint import load_checkpoint
from paceline.training.drivers.local import launcher
from paceline.workload import Workload
from tests.contract.drivers import ALL_DRIVERS, DRIVERS, train
from tests.contract.small_training import CPU, GAMMA
from tests.contract.test_repeating import DYING
from tests.contract.test_stages import one_process

BATCHES, EPOCHS = 15, 3
"""103 samples in batches of 7, the last with 5."""


def players(**changes) -> Workload:
    place = "tests.step.two_players"
    given = {"lr": 0.1, "batch": 7, "epochs": EPOCHS, "device": "cpu", "threads": 1, "optimizer": "momentum", **changes}
    return Workload(network=f"{place}:make", data=f"{place}:data", **given)


def simulated(strategy: Strategy, workers: int, cluster: VirtualCluster = GAMMA, **how):
    made = players()
    return simulate_training(assemble(made, load_data(made), CPU), strategy, workers, cluster, **how)


@pytest.mark.parametrize("driver", ALL_DRIVERS)
@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
def test_two_workers_are_one_process_with_the_joined_batch(driver, optimizer, tmp_path):
    made = players(optimizer=optimizer, lr=0.01 if optimizer == "adam" else 0.1)
    found = train(driver, made, find_strategy("sync"), 2, tmp_path / "run")
    alone = one_process(players(optimizer=optimizer, lr=made.lr, batch=14), tmp_path / "alone")
    torch.testing.assert_close(found.parameters, alone, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_rate_that_falls_with_every_step_is_the_same_for_both_phases(driver, tmp_path):
    made = players(schedule="cosine")
    found = train(driver, made, find_strategy("sync"), 1, tmp_path / "run")
    torch.testing.assert_close(found.parameters, one_process(made, tmp_path / "alone"), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("driver", DRIVERS)
def test_every_batch_is_applied_once_per_phase_and_counted_once_in_the_loss(driver, tmp_path):
    found = train(driver, players(), find_strategy("sync"), 2, tmp_path / "run").distribution
    assert found.ledger.applied_by_epoch == (2 * BATCHES,) * EPOCHS
    assert found.updates == 2 * -(-BATCHES // 2) * EPOCHS
    assert sum(worker.samples for worker in found.by_worker) == 103 * EPOCHS


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_recorded_run_replays_bitwise(driver, tmp_path):
    found = train(driver, players(), find_strategy("sync"), 2, tmp_path / "run", record_events=True)
    assert torch.equal(replay_run(tmp_path / "run"), found.parameters)


KILLS = tuple(Fault("kill", at=at, worker=worker) for at, worker in ((0, 0), (1, 3), (2, 1), (3, 2), (8, 1), (13, 3)))


@pytest.mark.parametrize("restart_s", [0.0, 0.3, 7.0])
def test_a_run_ends_with_the_same_bits_whoever_dies(restart_s):
    whole = simulated(find_strategy("sync"), 4)
    cluster = VirtualCluster(compute=GAMMA.compute, restart_s=restart_s)
    disturbed = simulated(find_strategy("sync"), 4, cluster, faults=KILLS)
    assert disturbed.distribution.ledger.returned >= 6
    assert torch.equal(disturbed.parameters, whole.parameters)


@pytest.mark.parametrize("at", [20, 21, 22, 23])
def test_so_does_one_of_real_processes_whose_server_is_killed_too(at, tmp_path):
    kills = (Fault("kill", 5, 1), Fault("kill", 12, 0), Fault("kill", at))
    slow = tuple(Fault("slow", worker=worker, seconds=0.003) for worker in range(2))
    whole = train("virtual", players(), find_strategy("sync"), 2, tmp_path / "whole")
    disturbed = train("local", players(), find_strategy("sync"), 2, tmp_path / "run", faults=(*kills, *slow))
    assert disturbed.distribution.fault_count == len(kills)
    assert torch.equal(disturbed.parameters, whole.parameters)


@pytest.mark.parametrize("name", ["sync", "mixed", "backup"])
def test_every_batch_is_done_once_per_phase_though_workers_die_or_leave_for_good(name):
    leaving = VirtualCluster(compute=GAMMA.compute, changes=(Change(2.2, 0, "leaves"), Change(2.7, 1, "leaves")))
    for cluster in (DYING, leaving):
        ledger = simulated(find_strategy(name), 4, cluster).distribution.ledger
        assert ledger.closed == 2 * BATCHES * EPOCHS
        assert ledger.dropped == 0 or name == "backup"


def test_a_resumed_run_continues_with_the_same_bits(tmp_path):
    launcher.run(players(epochs=2), find_strategy("sync"), workers=2, out=tmp_path / "run")
    launcher.resume(tmp_path / "run", changes={"epochs": EPOCHS})
    whole = train("local", players(), find_strategy("sync"), 2, tmp_path / "whole")
    again = load_checkpoint(tmp_path / "run").parameters
    assert torch.equal(torch.cat([p.flatten() for p in again.values()]), whole.parameters)
