"""Groups on three nodes whose members average among themselves: kills, a lost node, the bits of the virtual run."""

from __future__ import annotations

import pytest
import torch

from paceline.errors import StrategyError
from paceline.strategy.presets import find_strategy
from paceline.testing import Fault
from tests.contract.drivers import train
from tests.contract.test_conservation import strategy
from tests.training.drivers.ray.test_on_a_cluster import BATCHES, SLOW, Losing, made

pytestmark = [pytest.mark.slow, pytest.mark.serial, pytest.mark.usefixtures("ray_cluster")]


def test_a_killed_member_and_a_killed_server_leave_the_same_bits(tmp_path):
    whole = train("virtual", made(), find_strategy("sync"), 3, tmp_path / "whole")
    kills = (Fault("kill", 10, 1), Fault("kill", 20))
    slow = (*SLOW, Fault("slow", worker=2, seconds=0.02))
    options = {"faults": (*kills, *slow), "collective": "gloo"}
    found = train("ray", made(), find_strategy("sync"), 3, tmp_path / "run", **options)
    assert found.distribution.collective == "gloo"
    assert found.distribution.ledger.applied_by_epoch == (BATCHES, BATCHES)
    assert {fault.what for fault in found.distribution.faults} == {"died", "server died"}
    assert torch.equal(found.parameters, whole.parameters)


@pytest.mark.soak
@pytest.mark.parametrize("name", ["mixed", "sync", "diloco"])
def test_a_run_that_loses_a_node_ends_by_itself(name, ray_cluster, tmp_path):
    slow = tuple(Fault("slow", worker=worker, seconds=0.05) for worker in range(4))
    options = {"faults": slow, "collective": "gloo"}
    with Losing(ray_cluster, tmp_path / "run"):
        found = train("ray", made(epochs=3), strategy(name), 4, tmp_path / "run", **options)
    assert found.distribution.fault_count >= 1
    assert found.distribution.ledger.applied_by_epoch == (BATCHES,) * 3


@pytest.mark.soak
def test_a_member_that_hangs_is_replaced(tmp_path):
    whole = train("virtual", made(), find_strategy("sync"), 2, tmp_path / "whole")
    options = {"faults": (Fault("hang", 10, 1), *SLOW), "stopped_timeout": 5.0, "collective": "gloo"}
    found = train("ray", made(), find_strategy("sync"), 2, tmp_path / "run", **options)
    assert "hung" in {fault.what for fault in found.distribution.faults}
    assert found.distribution.ledger.applied_by_epoch == (BATCHES, BATCHES)
    assert torch.equal(found.parameters, whole.parameters)


@pytest.mark.parametrize(
    ("name", "collective", "message"),
    [
        ("downpour", "gloo", "downpour has none, only workers by themselves"),
        ("mixed", "gloo", "those of mixed with 2 workers have one each"),
        ("sync", "nccl", "collective nccl needs a GPU for each worker"),
    ],
)
def test_what_members_cannot_average_is_refused(name, collective, message, tmp_path):
    with pytest.raises(StrategyError, match=message):
        train("ray", made(), find_strategy(name), 2, tmp_path / "run", collective=collective)
