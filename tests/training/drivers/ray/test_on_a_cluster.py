"""The Ray driver on three nodes: deaths of workers, nodes and the server, resuming, the command line."""

from __future__ import annotations

import math
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

import paceline
from paceline.errors import PacelineError
from paceline.strategy.presets import find_strategy
from paceline.testing import Fault
from paceline.training.checkpoint import load_checkpoint
from paceline.training.drivers.local import launcher as local
from paceline.training.watcher import Silent
from tests.contract.drivers import train
from tests.contract.small_training import workload
from tests.contract.test_conservation import strategy
from tests.ray_cluster import NODE

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


class Losing(threading.Thread):
    """Removes a node with a worker on it, once a run has begun, and after a while adds another."""

    def __init__(self, cluster, run: Path, without_s: float = 0.0) -> None:
        super().__init__(daemon=True)
        self.cluster, self.run_directory, self.without_s = cluster, run, without_s
        self.added_s = math.inf
        self.start()

    def run(self) -> None:
        import ray

        while not (self.run_directory / "checkpoint.pt").exists():
            time.sleep(0.1)
        lost = None
        while lost is None:
            time.sleep(1.0)
            actors = ray._private.state.actors().values()
            used = {a["Address"]["NodeID"] for a in actors if a["State"] == "ALIVE" and "Worker" in a["ActorClassName"]}
            lost = next((node for node in self.cluster.list_all_nodes()[1:] if node.node_id in used), None)
        time.sleep(2.0)
        self.cluster.remove_node(lost, allow_graceful=False)
        time.sleep(self.without_s)
        self.cluster.add_node(**NODE)
        self.added_s = time.monotonic()


class Alive(Silent):
    """How many workers were alive, and when."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, int]] = []

    def advanced(self, progress) -> None:
        self.seen.append((time.monotonic(), progress.workers.alive))


@pytest.mark.parametrize(
    "name",
    [
        "downpour",
        *(pytest.param(name, marks=pytest.mark.soak) for name in ("delay-compensated", "mixed", "sync", "diloco")),
    ],
)
def test_a_run_that_loses_a_node_ends_by_itself(name, ray_cluster, tmp_path):
    losing = Losing(ray_cluster, tmp_path / "run")
    slow = tuple(Fault("slow", worker=worker, seconds=0.05) for worker in range(4))
    found = train("ray", made(epochs=3), strategy(name), 4, tmp_path / "run", faults=slow)
    losing.join(60)
    assert found.distribution.fault_count >= 1
    assert found.distribution.ledger.applied_by_epoch == (BATCHES,) * 3


@pytest.mark.soak
def test_a_node_that_is_added_is_used_within_30_s(ray_cluster, tmp_path):
    """Every worker fills a node, so that one of them waits for the new node."""
    losing, alive = Losing(ray_cluster, tmp_path / "run", without_s=10.0), Alive()
    slow = tuple(Fault("slow", worker=worker, seconds=0.5) for worker in range(3))
    options = {"faults": slow, "worker_cpus": 2.0, "watcher": alive}
    found = train("ray", made(), find_strategy("downpour"), 3, tmp_path / "run", **options)
    assert found.distribution.ledger.applied_by_epoch == (BATCHES, BATCHES)
    assert sorted(worker.starts for worker in found.distribution.by_worker) == [1, 1, 2]
    before = [count for at_s, count in alive.seen if losing.added_s - 5.0 < at_s < losing.added_s]
    assert max(before) == 2, "the run went on without the third"
    assert next(at_s for at_s, count in alive.seen if at_s > losing.added_s and count == 3) < losing.added_s + 30.0


@pytest.mark.soak
def test_a_hanging_worker_and_a_hanging_server_are_replaced(tmp_path):
    hangs = (Fault("hang", 10, 1), Fault("hang", 40))
    options = {"faults": (*hangs, *SLOW), "stopped_timeout": 5.0}
    found = train("ray", made(), find_strategy("downpour"), 2, tmp_path / "run", **options)
    assert found.distribution.ledger.applied_by_epoch == (BATCHES, BATCHES)
    assert {fault.what for fault in found.distribution.faults} >= {"hung", "server died"}


@pytest.mark.soak
def test_a_run_whose_launching_process_was_killed_is_resumed(ray_cluster, tmp_path):
    command = [
        sys.executable,
        "-m",
        "paceline",
        "train",
        "mlp",
        "--data",
        "digits",
        "--epochs",
        "200",
        "--workers",
        "2",
    ]
    command += ["--driver", "ray", "--address", ray_cluster.address, "--checkpoint-every", "1", "--out", "run"]
    with subprocess.Popen(command, cwd=tmp_path) as process:
        latest_s = time.monotonic() + 120.0
        while _epochs(tmp_path / "run") < 5 and time.monotonic() < latest_s:
            time.sleep(0.5)
        process.kill()
    reached = _epochs(tmp_path / "run")
    assert reached >= 5
    run = paceline.resume(tmp_path / "run", epochs=reached + 1)
    assert run.status == "finished" and len(set(run.distribution.ledger.applied_by_epoch)) == 1


def _epochs(directory: Path) -> int:
    return load_checkpoint(directory).epoch if (directory / "checkpoint.pt").exists() else 0


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


def test_objects_given_in_python_reach_the_workers(tmp_path):
    from torch import nn

    x = torch.randn(400, 1, 12, 12)  # large enough to be sent apart from the rest
    y = (x.mean((1, 2, 3)) > 0).long()
    module = nn.Sequential(nn.Flatten(), nn.Linear(144, 2))
    settings = {"data": ((x, y), (x, y)), "batch": 20, "epochs": 2, "lr": 0.1}
    run = paceline.train(module, "downpour", 2, "ray", tmp_path / "run", **settings)
    assert run.status == "finished" and run.test_accuracy > 0.7


def test_the_command_line(request, tmp_path):
    paceline = request.getfixturevalue("paceline")
    arguments = ("mlp", "--data", "digits", "--epochs", "1", "--strategy", "downpour", "--workers", "2")
    result = paceline("train", *arguments, "--driver", "ray", "--out", tmp_path / "run")
    assert result.code == 0, result.err
    result = paceline("train", "--resume", tmp_path / "run", "--set", "epochs=2")
    assert result.code == 0, result.err
