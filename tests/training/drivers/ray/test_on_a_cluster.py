"""The Ray driver on three nodes: deaths of workers, nodes and the server, resuming, the command line."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
import torch

from paceline.errors import PacelineError
from paceline.strategy.presets import find_strategy
from paceline.testing import Fault
from paceline.training.checkpoint import load_checkpoint
from paceline.training.drivers.local import launcher as local
from tests.contract.drivers import train
from tests.contract.small_training import workload
from tests.contract.test_conservation import strategy
from tests.ray_cluster import NODE

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'paceline[ray]'")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_cluster")]

BATCHES = 90
SLOW = tuple(Fault("slow", worker=worker, seconds=0.02) for worker in range(2))
"""So that a run lasts long enough for a fault in the middle of it."""


def made(epochs: int = 2):
    return workload(batch=16, epochs=epochs)


def test_a_killed_worker_and_a_killed_server_leave_the_same_bits(tmp_path):
    whole = train("virtual", made(), find_strategy("sync"), 2, tmp_path / "whole")
    kills = (Fault("kill", 10, 1), Fault("kill", 30))
    found = train("ray", made(), find_strategy("sync"), 2, tmp_path / "run", faults=(*kills, *SLOW))
    assert found.distribution.ledger.applied_by_epoch == (BATCHES, BATCHES)
    assert {fault.what for fault in found.distribution.faults} == {"died", "server died"}
    assert torch.equal(found.parameters, whole.parameters)


def lose_a_node(cluster, begun: Path) -> threading.Thread:
    """Removes, once a run has a checkpoint and has begun, a node with a worker on it; then adds another."""

    def work() -> None:
        while not (begun / "checkpoint.pt").exists():
            time.sleep(0.1)
        time.sleep(2.0)
        actors = ray._private.state.actors().values()
        used = {actor["Address"]["NodeID"] for actor in actors if actor["State"] == "ALIVE"}
        lost = next((node for node in cluster.list_all_nodes()[1:] if node.node_id in used), None)
        if lost is not None:
            cluster.remove_node(lost, allow_graceful=False)
            cluster.add_node(**NODE)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize(
    "name",
    [
        "downpour",
        *(pytest.param(name, marks=pytest.mark.soak) for name in ("delay-compensated", "mixed", "sync", "diloco")),
    ],
)
def test_a_run_that_loses_a_node_ends_by_itself(name, ray_cluster, tmp_path):
    losing = lose_a_node(ray_cluster, tmp_path / "run")
    slow = tuple(Fault("slow", worker=worker, seconds=0.05) for worker in range(4))
    found = train("ray", made(epochs=3), strategy(name), 4, tmp_path / "run", faults=slow)
    losing.join(60)
    assert found.distribution.fault_count >= 1
    assert found.distribution.ledger.applied_by_epoch == (BATCHES,) * 3


def test_a_run_continues_on_the_other_driver(tmp_path):
    whole = train("virtual", made(), find_strategy("sync"), 2, tmp_path / "whole")
    train("ray", made(epochs=1), find_strategy("sync"), 2, tmp_path / "run")
    run = local.resume(tmp_path / "run", changes={"epochs": 2})
    assert run.status == "finished" and run.distribution.ledger.applied_by_epoch == (BATCHES, BATCHES)
    saved = load_checkpoint(tmp_path / "run").parameters.values()
    assert torch.equal(torch.cat([tensor.flatten() for tensor in saved]), whole.parameters)


def test_a_module_that_a_node_does_not_have_is_named(tmp_path, monkeypatch):
    (tmp_path / "my_network.py").write_text(
        "from torch import nn\n\n\ndef net():\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    network = {"network": "my_network:net", "dropout": None, "options": {}}
    monkeypatch.setattr("paceline.training.drivers.ray.ray_training.sys.path", [])
    with pytest.raises(PacelineError, match=r"worker \d: no module 'my_network'") as caught:
        train("ray", workload(**network), find_strategy("sync"), 2, tmp_path / "run")
    assert "\n" not in str(caught.value)


def test_the_command_line(paceline, tmp_path):
    arguments = ("mlp", "--data", "digits", "--epochs", "1", "--strategy", "downpour", "--workers", "2")
    result = paceline("train", *arguments, "--driver", "ray", "--out", tmp_path / "run")
    assert result.code == 0, result.err
    result = paceline("train", "--resume", tmp_path / "run", "--set", "epochs=2")
    assert result.code == 0, result.err
