"""The Ray driver on three nodes: deaths of workers, nodes and the server, resuming, the command line."""

from __future__ import annotations

import math
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import paceline
from paceline.errors import PacelineError
from paceline.strategy.presets import find_strategy
from paceline.testing import Fault
from paceline.training.checkpoint import load_checkpoint
from paceline.training.drivers.local import launcher as local
from paceline.training.drivers.ray import ray_training, supervisor
from paceline.training.drivers.ray.node_links import measure_node_link
from paceline.training.watcher import Silent
from tests.contract.drivers import train
from tests.contract.small_training import workload
from tests.contract.test_conservation import strategy
from tests.ray_cluster import add_node

pytestmark = [pytest.mark.slow, pytest.mark.serial, pytest.mark.usefixtures("ray_cluster")]

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


@pytest.mark.soak
def test_a_server_with_a_replica_loses_no_update(tmp_path):
    whole = train("virtual", made(), find_strategy("sync"), 2, tmp_path / "whole")
    faults = (Fault("kill", 60), *SLOW)
    found = train("ray", made(), find_strategy("sync"), 2, tmp_path / "run", faults=faults, server_replica=True)
    (died,) = found.distribution.faults
    assert died.what == "server died" and int(died.note.removeprefix("continued from update ")) >= 60
    assert found.distribution.ledger.applied_by_epoch == (BATCHES, BATCHES)
    assert torch.equal(found.parameters, whole.parameters)


class Losing(threading.Thread):
    """Removes the node of the server, of a shard or of workers alone, once a run has begun, and later adds another.

    As a context it ends with the run, and whatever the run did.
    """

    def __init__(self, cluster, run: Path, without_s: float = 0.0, kind: str = "Worker") -> None:
        super().__init__(daemon=True)
        self.kind = kind
        self.cluster, self.run_directory, self.without_s = cluster, run, without_s
        self.added_s = math.inf
        self.over = threading.Event()
        self.before = set(self._actors())
        """Actors of earlier runs, which Ray may list as alive for a while."""

    def __enter__(self) -> Losing:
        self.start()
        return self

    def __exit__(self, *_) -> None:
        self.over.set()
        self.join(60)
        assert not self.is_alive()

    def run(self) -> None:
        while not (self.run_directory / "checkpoint.pt").exists():
            if self.over.wait(0.1):
                return
        while (lost := self._used_node()) is None:
            if self.over.wait(1.0):
                return
        self.over.wait(2.0)
        self.cluster.remove_node(lost, allow_graceful=False)
        self.over.wait(self.without_s)
        add_node(self.cluster)
        self.added_s = time.monotonic()

    def _actors(self) -> dict[str, Any]:
        import ray

        return dict(ray._private.state.actors())

    def _used_node(self):
        new = (actor for number, actor in self._actors().items() if number not in self.before)
        used: dict[str, set[str]] = {"Server": set(), "Worker": set()}
        for actor in new:
            if actor["State"] == "ALIVE":
                used.setdefault(actor["ActorClassName"], set()).add(actor["Address"]["NodeID"])
        wanted = used["Worker"] - used["Server"] if self.kind == "Worker" else used.get(self.kind, set())
        return next((node for node in self.cluster.list_all_nodes()[1:] if node.node_id in wanted), None)


def on_a_node_of_its_own(node, monkeypatch) -> dict[str, int]:
    """Settings that let the server fill a node."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    where = NodeAffinitySchedulingStrategy(node.node_id, soft=True)
    monkeypatch.setattr(supervisor, "node_of_server", lambda ray, shares: where)
    return {"server_threads": 2}


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
    slow = tuple(Fault("slow", worker=worker, seconds=0.05) for worker in range(4))
    with Losing(ray_cluster, tmp_path / "run"):
        found = train("ray", made(epochs=3), strategy(name), 4, tmp_path / "run", faults=slow)
    assert found.distribution.fault_count >= 1
    assert found.distribution.ledger.applied_by_epoch == (BATCHES,) * 3


@pytest.mark.soak
@pytest.mark.parametrize(
    ("name", "replica"),
    [(name, False) for name in ("downpour", "delay-compensated", "mixed", "sync", "diloco")] + [("sync", True)],
)
def test_a_run_that_loses_the_node_of_its_server_ends_by_itself(name, replica, ray_cluster, tmp_path, monkeypatch):
    alone = on_a_node_of_its_own(ray_cluster.list_all_nodes()[1], monkeypatch)  # the first one is this process's
    slow = tuple(Fault("slow", worker=worker, seconds=0.2) for worker in range(4))
    options = {"faults": slow, "server_replica": replica, "checkpoint_every_s": 2.0, **alone}
    with Losing(ray_cluster, tmp_path / "run", kind="Server"):
        found = train("ray", made(epochs=3), strategy(name), 4, tmp_path / "run", **options)
    assert "server died" in {fault.what for fault in found.distribution.faults}
    assert found.distribution.ledger.applied_by_epoch == (BATCHES,) * 3


@pytest.mark.soak
def test_a_node_that_is_added_is_used_within_30_s(ray_cluster, tmp_path):
    """Every worker fills a node, so that one of them waits for the new node. The server's node stays."""
    alive = Alive()
    slow = tuple(Fault("slow", worker=worker, seconds=0.5) for worker in range(3))
    options = {"faults": slow, "worker_cpus": 2.0, "watcher": alive}
    with Losing(ray_cluster, tmp_path / "run", without_s=10.0) as losing:
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
    command = [sys.executable, "-m", "paceline", "train", "mlp", "--data", "digits", "--epochs", "200"]
    command += ["--strategy", "downpour", "--workers", "2", "--driver", "ray", "--address", ray_cluster.address]
    command += ["--checkpoint-every", "1", "--out", "run"]
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


@pytest.mark.soak
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
    job = ray_training.Job
    monkeypatch.setattr(ray_training, "Job", lambda *a, **given: job(*a, **{**given, "search_path": ()}))
    with pytest.raises(PacelineError, match=r"worker \d: no module 'my_network'") as caught:
        train("ray", workload(**network), find_strategy("sync"), 2, tmp_path / "run")
    assert "\n" not in str(caught.value)


@pytest.mark.soak
def test_a_node_with_another_version_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("paceline.training.drivers.ray.job.own_version", lambda: "0.0")
    with pytest.raises(
        PacelineError, match=r"worker \d: node .* has paceline .*, but the driver process has 0\.0"
    ) as caught:
        train("ray", workload(), find_strategy("sync"), 2, tmp_path / "run")
    assert "\n" not in str(caught.value)


def test_more_workers_than_there_is_room_for_are_refused_before_anything_starts(tmp_path):
    with pytest.raises(PacelineError, match=r"7 workers with 1 CPU each do not fit: .* on 3 nodes, room for 6"):
        train("ray", workload(), find_strategy("sync"), 7, tmp_path / "run")


@pytest.mark.soak
def test_objects_given_in_python_reach_the_workers(tmp_path):
    from torch import nn

    x = torch.randn(400, 1, 12, 12)  # large enough to be sent apart from the rest
    y = (x.mean((1, 2, 3)) > 0).long()
    module = nn.Sequential(nn.Flatten(), nn.Linear(144, 2))
    settings = {"data": ((x, y), (x, y)), "batch": 20, "epochs": 2, "lr": 0.1}
    run = paceline.train(module, "downpour", 2, "ray", tmp_path / "run", **settings)
    assert run.status == "finished" and run.test_accuracy > 0.7


@pytest.mark.soak
def test_the_command_line(request, tmp_path):
    paceline = request.getfixturevalue("paceline")
    arguments = ("mlp", "--data", "digits", "--epochs", "1", "--strategy", "downpour", "--workers", "2")
    result = paceline("train", *arguments, "--driver", "ray", "--out", tmp_path / "run")
    assert result.code == 0, result.err
    result = paceline("train", "--resume", tmp_path / "run", "--set", "epochs=2")
    assert result.code == 0, result.err


def test_the_network_between_nodes_is_measured_through_the_driver():
    import ray

    found = measure_node_link(ray, large_bytes=4 << 20)
    assert 0 < found.latency_s < 0.1
    assert 1e7 < found.bandwidth < 1e11


def test_a_record_says_how_many_nodes_had_workers(tmp_path):
    found = train("ray", made(epochs=1), strategy("mixed"), 4, tmp_path / "run")
    assert found.distribution.nodes == 3
