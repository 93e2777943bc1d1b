"""What a user defines in a module of their own keeps the contract like a built-in one, on both drivers."""

from __future__ import annotations

import pytest
import torch

from paceline.simulation.replay import replay_run
from paceline.strategy.presets import find_strategy
from tests.contract.drivers import ALL_DRIVERS, train
from tests.contract.small_training import start, trained, workload
from tests.contract.test_conservation import BATCHES

NAMES = [f"tests.contract.users_parts:{name}" for name in ("halving", "smoothing", "adam_at_the_server")]


@pytest.mark.parametrize("driver", ALL_DRIVERS)
@pytest.mark.parametrize("name", NAMES)
def test_batches_are_conserved_and_the_run_is_repeated_bitwise(name, driver, tmp_path):
    found = train(driver, workload(), find_strategy(name), 2, tmp_path / "run", record_events=True)
    assert found.distribution.ledger.applied_by_epoch == (BATCHES,)
    assert not torch.equal(found.parameters, start())
    assert torch.equal(replay_run(tmp_path / "run"), found.parameters)


@pytest.mark.parametrize("driver", ALL_DRIVERS)
@pytest.mark.parametrize("strategy", ["local-sgd", "easgd"])
def test_every_worker_has_an_optimizer_with_a_scheduler(strategy, driver, tmp_path):
    """Real workers have one each; a replay has one for all of them, which have made different numbers of updates."""
    own = workload(optimizer="tests.contract.users_parts:two_rates")
    found = train(driver, own, find_strategy(strategy), 2, tmp_path / "run", record_events=True)
    assert found.accuracy > 0.7
    assert torch.equal(replay_run(tmp_path / "run"), found.parameters)


@pytest.mark.parametrize("name", NAMES)
def test_virtual_time_repeats_bitwise(name):
    first, second = (trained(find_strategy(name), 3) for _ in range(2))
    assert torch.equal(first.parameters, second.parameters)


def test_the_scheduler_and_the_parameter_groups_have_their_effect():
    """Biases have a rate of a fifth, so they move less."""
    moved = (trained(find_strategy(NAMES[2]), 2).parameters - start()).abs()
    weights, biases = moved[: 64 * 16], moved[64 * 16 : 64 * 16 + 16]
    assert weights.max() > 2 * biases.max() > 0
