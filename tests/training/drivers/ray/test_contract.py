"""The contract on three nodes, once for each strategy; `tests/contract` has all of it, for `make soak`."""

from __future__ import annotations

import pytest
import torch

from paceline.simulation.replay import replay_run
from paceline.strategy.presets import PRESETS
from tests.contract.drivers import train
from tests.contract.small_training import start, workload
from tests.contract.test_conservation import BATCHES, strategy

pytestmark = [pytest.mark.slow, pytest.mark.serial, pytest.mark.usefixtures("ray_cluster")]


SOON = ("sync", "backup", "downpour", "delay-compensated", "softsync", "mixed", "diloco", "easgd", "compressed")
"""Every way in which the server and its workers work together; the others differ in what they compute."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.soak] * (name not in SOON)) for name in PRESETS]
)
def test_batches_are_conserved_and_the_run_is_repeated_bitwise(name, tmp_path):
    found = train("ray", workload(dropout=0.2), strategy(name), 2, tmp_path / "run", record_events=True)
    ledger = found.distribution.ledger
    assert ledger.applied + ledger.dropped == BATCHES and ledger.refused == ledger.returned == 0
    assert (ledger.dropped > 0) <= (name == "backup")
    assert ledger.updates == found.distribution.updates == len(found.events.updates) > 0
    assert not torch.equal(found.parameters, start())
    assert torch.equal(replay_run(tmp_path / "run"), found.parameters)
