"""Groups whose members average among themselves: the same as from shared memory, whoever dies in between."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import torch
from torch import Tensor

from paceline.errors import Diverged, StrategyError
from paceline.strategy.presets import find_strategy
from paceline.strategy.strategy import Strategy
from paceline.testing import Fault
from paceline.training.checkpoint import load_checkpoint
from paceline.training.collective import choose_collective
from paceline.training.drivers.local import launcher, local_training
from paceline.training.run import Run
from tests.training.drivers.local.small import (
    BATCHES,
    SAMPLES,
    assert_gone,
    assert_nothing_is_left,
    fork_servers,
    own,
    own_processes,
    parameters,
    wait_for,
    workload,
)
from tests.training.drivers.local.test_interrupting import started, updates

__all__ = ["started"]  # a fixture
CUDA = ["cuda:0", "cuda:1", "cuda:2", "cuda:3"]


def trained(place: Path, strategy: Strategy | str, collective: str, workers: int = 2, **changes) -> tuple[Run, Tensor]:
    options = {key: changes.pop(key) for key in ("faults", "stopped_timeout", "on_bad_gradient") if key in changes}
    made = own(changes.pop("own"), **changes) if "own" in changes else workload(**changes)
    run = launcher.run(made, strategy, workers=workers, collective=collective, out=place, **options)
    return run, parameters(place)


def difference(one: Tensor, other: Tensor) -> float:
    return float((one - other).norm() / other.norm())


@pytest.mark.parametrize(
    ("strategy", "workers", "changes"),
    [
        (find_strategy("sync"), 3, {"batch": 60, "optimizer": "momentum", "lr": 0.05}),
        (find_strategy("local-sgd", push_every=3, fetch_every=3), 2, {"own": "with_batch_norm"}),
    ],
    ids=["sync", "local-sgd with batch norm"],
)
def test_members_average_to_what_shared_memory_does(tmp_path, strategy, workers, changes):
    (shared, a), (gloo, b) = (trained(tmp_path / how, strategy, how, workers, **changes) for how in ("shared", "gloo"))
    assert difference(b, a) <= 1e-5
    assert gloo.distribution.ledger == shared.distribution.ledger
    assert gloo.distribution.faults == ()
    assert gloo.distribution.collective == "gloo" != shared.distribution.collective
    assert "groups average with gloo" in gloo.step.reason
    assert_nothing_is_left()


def test_two_groups_average_apart(tmp_path):
    run, _ = trained(tmp_path / "two", find_strategy("mixed", groups=2), "gloo", 4, epochs=4)
    assert run.distribution.ledger.applied_by_epoch == (BATCHES,) * 4
    assert run.distribution.faults == ()


def test_a_killed_member_restarts_its_group_and_every_batch_counts_once(tmp_path):
    slow = tuple(Fault("slow", 0, worker, seconds=0.01) for worker in range(2))
    _, whole = trained(tmp_path / "whole", "sync", "gloo", epochs=5)
    kills = (Fault("kill", 10, 1), Fault("kill", 30))
    run, found = trained(tmp_path / "run", "sync", "gloo", epochs=5, faults=(*kills, *slow))
    d = run.distribution
    assert sorted(fault.what for fault in d.faults) == ["died", "restarted", "server died"]
    assert d.ledger.applied_by_epoch == (BATCHES,) * 5
    assert (d.ledger.dropped, d.ledger.refused) == (0, 0)
    assert [worker.starts for worker in d.by_worker] == [2, 2]
    assert difference(found, whole) <= 1e-5
    assert_nothing_is_left()


def test_a_payload_that_is_not_finite_is_refused_by_name(tmp_path):
    corrupt = (Fault("corrupt", 10, 1),)
    run, found = trained(tmp_path / "run", "sync", "gloo", faults=corrupt, on_bad_gradient="skip")
    d = run.distribution
    assert [(fault.what, fault.worker) for fault in d.faults] == [("refused", 1)]
    assert (d.ledger.refused, d.ledger.applied) == (1, 3 * BATCHES - 1)
    assert found.isfinite().all()
    with pytest.raises(Diverged, match=r"worker 1, task \d+, epoch \d+, (step|batch) \d+"):
        launcher.run(workload(), "sync", workers=2, collective="gloo", faults=corrupt)


@pytest.mark.slow
def test_ctrl_c_leaves_nothing(tmp_path, started):
    process = started(tmp_path / "run", "sync", "gloo")
    wait_for(lambda: updates(tmp_path / "run") > 10)
    children = [*own_processes(process.pid), *fork_servers(process.pid)]
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode == 130
    assert_gone(children)
    epochs = load_checkpoint(tmp_path / "run").epoch + 1
    run = launcher.resume(tmp_path / "run", changes={"epochs": epochs}, collective="gloo")
    assert run.distribution.ledger.applied_by_epoch == (-(-SAMPLES // 4),) * epochs


# On GPUs


@pytest.mark.gpu
def test_a_worker_on_a_gpu_averages_with_nccl(tmp_path, monkeypatch):
    """By itself: all but the other members is as with several GPUs, where payloads lie and what is handed over."""
    _, a = trained(tmp_path / "shared", "sync", "shared", 1, device="cuda:0")
    monkeypatch.setattr(local_training, "choose_collective", lambda *_, **__: "nccl")
    run, b = trained(tmp_path / "nccl", "sync", "shared", 1, device="cuda:0")
    assert run.distribution.collective == "nccl"
    assert difference(b, a) <= 1e-5


@pytest.mark.gpu
def test_workers_that_share_a_gpu_average_with_gloo(tmp_path):
    (_, a), (_, b) = (trained(tmp_path / how, "sync", how, device="cuda:0") for how in ("shared", "gloo"))
    assert difference(b, a) <= 1e-5


# Which it is


@pytest.mark.parametrize(
    ("strategy", "workers", "devices", "found"),
    [
        (find_strategy("sync"), 4, CUDA, "nccl"),
        (find_strategy("mixed"), 4, CUDA, "nccl"),
        (find_strategy("local-sgd"), 2, CUDA[:2], "nccl"),
        (find_strategy("sync"), 1, CUDA[:1], "shared"),
        (find_strategy("sync"), 2, ["cuda:0", "cuda:0"], "shared"),
        (find_strategy("mixed"), 4, [*CUDA[:2], *CUDA[:2]], "shared"),
        (find_strategy("mixed"), 2, CUDA[:2], "shared"),
        (find_strategy("sync"), 2, ["cpu", "cpu"], "shared"),
        (find_strategy("towers"), 2, CUDA[:2], "nccl"),
        (find_strategy("backup"), 3, CUDA[:3], "shared"),
        (find_strategy("downpour"), 2, CUDA[:2], "shared"),
    ],
)
def test_auto_is_nccl_where_every_worker_has_a_gpu(monkeypatch, strategy, workers, devices, found):
    monkeypatch.setattr("paceline.training.collective.is_available", lambda backend: True)
    assert choose_collective("auto", strategy, workers, devices) == found
    assert choose_collective("auto", strategy, workers, devices, record_events=True) == "shared"


def test_members_that_share_a_gpu_cannot_have_nccl(monkeypatch):
    monkeypatch.setattr("paceline.training.collective.is_available", lambda backend: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    found = choose_collective("nccl", find_strategy("mixed"), 4, [*CUDA[:2], *CUDA[:2]])
    assert found == "nccl", "one for each of a group"
    with pytest.raises(StrategyError, match="the 3 workers of group 0 are on cuda:0, cuda:1, cuda:0: use `collective"):
        choose_collective("nccl", find_strategy("sync"), 3, [*CUDA[:2], "cuda:0"])


@pytest.mark.parametrize(
    ("strategy", "options", "message"),
    [
        ("sync", {"collective": "mpi"}, "collective 'mpi' is unknown"),
        ("sync", {"collective": "nccl"}, "nccl needs a GPU for each member of a group; this machine has no GPUs"),
        ("downpour", {"collective": "gloo"}, "downpour has none, only workers by themselves"),
        ("backup", {"collective": "gloo"}, "backup continues without some"),
        ("deep-compression", {"collective": "gloo"}, "payloads of momentum-topk:0.01 cannot be added up"),
        ("mixed", {"collective": "gloo"}, "those of mixed with 2 workers have one each"),
        ("sync", {"collective": "gloo", "record_events": True}, "a replay cannot repeat: leave out `record_events`"),
    ],
)
def test_what_cannot_be_added_up_is_refused_before_anything_starts(monkeypatch, strategy, options, message):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(StrategyError, match=message) as caught:
        launcher.run(workload(), strategy, workers=2, **options)
    assert caught.value.exit_code == 2
