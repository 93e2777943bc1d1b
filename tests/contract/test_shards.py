"""A server of several shards keeps the contract, and every run could have been one with a single server."""

from __future__ import annotations

import pytest
import torch

from paceline.simulate.replay import replay_run
from paceline.strategy.strategy import preset
from paceline.testing import Fault
from tests.contract.drivers import train
from tests.contract.small_training import start, workload
from tests.contract.test_conservation import BATCHES
from tests.contract.test_repeating import with_batch_norm

SLOW = tuple(Fault("slow", worker=worker, seconds=0.003) for worker in range(2))
CASES = {
    "sync": (preset("sync"), {"optimizer": "momentum"}),
    "downpour": (preset("downpour"), {}),
    "downpour, adagrad": (preset("downpour", server_optimizer="adagrad:0.05"), {}),
    "downpour, adam": (preset("downpour"), {"optimizer": "adam", "lr": 0.002}),
    "constant": (preset("delay-compensated", correction="constant:0.04"), {}),
    "adaptive": (preset("delay-compensated"), {}),
    "easgd": (preset("easgd", push_every=5), {}),
    "mixed": (preset("mixed", correction="adaptive:2"), {}),
    "softsync": (preset("softsync"), {}),
    "local-sgd": (preset("local-sgd", fetch_every=5, push_every=5), {}),
}


@pytest.mark.parametrize(
    ("name", "shards"),
    [
        ("sync", 2), ("downpour", 3), ("downpour, adagrad", 2), ("downpour, adam", 3), ("constant", 2), ("adaptive", 3),
        ("easgd", 2), ("mixed", 2), pytest.param("softsync", 3, marks=pytest.mark.slow),
        pytest.param("local-sgd", 2, marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_batches_are_conserved_and_one_server_repeats_the_run_bitwise(name, shards, tmp_path):
    strategy, changes = CASES[name]
    found = train("local", workload(**changes), strategy, 2, tmp_path / "run", record_events=True, shards=shards)
    ledger = found.distribution.ledger
    assert found.distribution.shards == shards
    assert ledger.applied_by_epoch == (BATCHES,)
    assert ledger.dropped == ledger.refused == ledger.returned == 0
    assert ledger.updates == found.distribution.updates == len(found.events.updates)
    assert not torch.equal(found.parameters, start())
    assert torch.equal(replay_run(tmp_path / "run"), found.parameters)


@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer": "adam", "lr": 0.002},
        pytest.param(
            {"network": f"{with_batch_norm.__module__}:with_batch_norm", "dropout": None, "options": {}},
            marks=pytest.mark.slow,
        ),
    ],
    ids=["adam", "batch norm"],
)
def test_a_synchronous_run_ends_with_the_same_bits_with_any_number_of_shards(changes, tmp_path):
    made = workload(batch=32, **changes)
    one, two, three = (
        train("local", made, preset("sync"), 2, tmp_path / str(shards), shards=shards).parameters
        for shards in (1, 2, 3)
    )
    assert torch.equal(one, two) and torch.equal(one, three)


@pytest.mark.slow
def test_so_it_does_whoever_is_killed(tmp_path):
    made = workload(batch=16, epochs=4, optimizer="momentum")
    kills = (
        Fault("kill", 20, shard=1), Fault("kill", 40), Fault("kill", 41, shard=2), Fault("kill", 60, 1),
        Fault("kill", 80, shard=1), Fault("kill", 80, shard=2),
    )  # fmt: skip
    undisturbed = train("local", made, preset("sync"), 2, tmp_path / "undisturbed")
    disturbed = train("local", made, preset("sync"), 2, tmp_path / "disturbed", faults=(*kills, *SLOW), shards=3)
    whats = [fault.what for fault in disturbed.distribution.faults]
    assert sorted(whats) == ["died", "server died", *["shard died"] * 4]
    assert disturbed.distribution.updates == undisturbed.distribution.updates
    assert torch.equal(disturbed.parameters, undisturbed.parameters)


def test_an_asynchronous_run_with_kills_is_one_that_a_single_server_repeats(tmp_path):
    kills = (Fault("kill", 60, shard=1), Fault("kill", 120), Fault("kill", 180, shard=1))
    found = train(
        "local", workload(epochs=3), preset("delay-compensated"), 2, tmp_path / "run", record_events=True,
        faults=(*kills, *SLOW), shards=2,
    )  # fmt: skip
    assert found.distribution.ledger.applied_by_epoch == (BATCHES,) * 3
    assert found.distribution.fault_count == len(kills)
    assert torch.equal(replay_run(tmp_path / "run"), found.parameters)
