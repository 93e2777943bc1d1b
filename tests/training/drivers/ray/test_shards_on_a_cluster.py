"""Several shards of the server on three nodes: results, a killed shard with and without a replica, a lost node."""

from __future__ import annotations

import os
import signal

import pytest
import torch

from paceline.strategy.presets import find_strategy
from paceline.testing import Fault
from paceline.training.watcher import Silent
from tests.contract.drivers import train
from tests.contract.test_conservation import strategy
from tests.training.drivers.ray.test_on_a_cluster import BATCHES, SLOW, Losing, made

pytestmark = [pytest.mark.slow, pytest.mark.serial, pytest.mark.usefixtures("ray_cluster")]

SOME = 20
"""Batches of an epoch after which something is killed."""


class Killing(Silent):
    """Kills one of the run's actors, after at least `killed_at` updates of two workers."""

    def __init__(self, kind: str = "ServerShard") -> None:
        self.kind, self.killed_at = kind, -1

    def advanced(self, progress) -> None:
        import ray

        if self.killed_at < 0 and progress.step >= SOME:
            self.killed_at = progress.step // 2
            actors = ray._private.state.actors().values()
            alive = [actor for actor in actors if actor["ActorClassName"] == self.kind and actor["State"] == "ALIVE"]
            os.kill(alive[-1]["Pid"], signal.SIGKILL)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return train("virtual", made(), find_strategy("sync"), 2, tmp_path_factory.mktemp("whole") / "run").parameters


@pytest.mark.parametrize(
    ("kind", "replica"),
    [
        ("ServerShard", False),
        pytest.param("ServerShard", True, marks=pytest.mark.soak),
        pytest.param("Server", False, marks=pytest.mark.soak),
        pytest.param("Server", True, marks=pytest.mark.soak),
    ],
)
def test_a_killed_shard_or_server_leaves_the_bits_of_one_server(kind, replica, whole, tmp_path):
    """With replicas no update is lost. Workers are not started again."""
    killing = Killing(kind)
    options = {"server_shards": 2, "server_replica": replica, "watcher": killing, "checkpoint_every_s": 1.0}
    found = train("ray", made(), find_strategy("sync"), 2, tmp_path / "run", faults=SLOW, **options)
    (died,) = found.distribution.faults
    assert died.what == ("shard died" if kind == "ServerShard" else "server died")
    assert int(died.note.removeprefix("continued from update ")) >= (killing.killed_at if replica else 0)
    assert found.distribution.ledger.applied_by_epoch == (BATCHES, BATCHES)
    assert [worker.starts for worker in found.distribution.by_worker] == [1, 1]
    assert found.distribution.server_shards == 2
    assert torch.equal(found.parameters, whole)


@pytest.mark.soak
@pytest.mark.parametrize("name", ["downpour", "delay-compensated", "mixed", "sync", "diloco"])
@pytest.mark.parametrize("replica", [False, True])
def test_a_run_that_loses_a_node_with_a_shard_ends_by_itself(name, replica, ray_cluster, tmp_path):
    slow = tuple(Fault("slow", worker=worker, seconds=0.3) for worker in range(4))
    options = {"server_shards": 3, "server_replica": replica, "checkpoint_every_s": 2.0, "faults": slow}
    with Losing(ray_cluster, tmp_path / "run", kind="ServerShard"):
        found = train("ray", made(epochs=3), strategy(name), 4, tmp_path / "run", **options)
    assert {"shard died", "server died"} & {fault.what for fault in found.distribution.faults}
    assert found.distribution.ledger.applied_by_epoch == (BATCHES,) * 3
