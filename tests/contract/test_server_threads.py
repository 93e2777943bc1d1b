"""A server with several threads keeps the contract, and every run could have been one with a single thread."""

from __future__ import annotations

import pytest
import torch

from paceline.simulation.replay import replay_run
from paceline.strategy.presets import find_strategy
from paceline.testing import Fault
from tests.contract.drivers import train
from tests.contract.small_training import start, workload
from tests.contract.test_conservation import BATCHES
from tests.contract.test_repeating import with_batch_norm

SLOW = tuple(Fault("slow", worker=worker, seconds=0.003) for worker in range(2))
CASES = {
    "sync": (find_strategy("sync"), {"optimizer": "momentum"}),
    "downpour": (find_strategy("downpour"), {}),
    "downpour, adagrad": (find_strategy("downpour", server_optimizer="adagrad:0.05"), {}),
    "downpour, adam": (find_strategy("downpour"), {"optimizer": "adam", "lr": 0.002}),
    "constant": (find_strategy("delay-compensated", correction="constant:0.04"), {}),
    "adaptive": (find_strategy("delay-compensated"), {}),
    "easgd": (find_strategy("easgd", push_every=5), {}),
    "mixed": (find_strategy("mixed", correction="adaptive:2"), {}),
    "softsync": (find_strategy("softsync"), {}),
    "local-sgd": (find_strategy("local-sgd", fetch_every=5, push_every=5), {}),
}


@pytest.mark.parametrize(
    ("name", "threads"),
    [
        ("sync", 2), ("downpour", 3), ("downpour, adagrad", 2), ("downpour, adam", 3), ("constant", 2), ("adaptive", 3),
        ("easgd", 2), ("mixed", 2), pytest.param("softsync", 3, marks=pytest.mark.slow),
        pytest.param("local-sgd", 2, marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_batches_are_conserved_and_one_thread_repeats_the_run_bitwise(name, threads, tmp_path):
    strategy, changes = CASES[name]
    found = train(
        "local", workload(**changes), strategy, 2, tmp_path / "run", record_events=True, server_threads=threads
    )
    ledger = found.distribution.ledger
    assert found.distribution.server_threads == threads
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
def test_a_synchronous_run_ends_with_the_same_bits_with_any_number_of_threads(changes, tmp_path):
    made = workload(batch=32, **changes)
    one, two, three = (
        train("local", made, find_strategy("sync"), 2, tmp_path / str(threads), server_threads=threads).parameters
        for threads in (1, 2, 3)
    )
    assert torch.equal(one, two) and torch.equal(one, three)


def test_an_asynchronous_run_with_kills_is_one_that_a_single_thread_repeats(tmp_path):
    kills = (Fault("kill", 60, 1), Fault("kill", 120), Fault("kill", 180, 0))
    found = train(
        "local", workload(epochs=3), find_strategy("delay-compensated"), 2, tmp_path / "run", record_events=True,
        faults=(*kills, *SLOW), server_threads=2,
    )  # fmt: skip
    assert found.distribution.ledger.applied_by_epoch == (BATCHES,) * 3
    assert found.distribution.fault_count == len(kills)
    assert torch.equal(replay_run(tmp_path / "run"), found.parameters)
