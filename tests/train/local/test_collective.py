"""Groups whose members add up among themselves: the same as from shared memory, whoever dies in between."""

from __future__ import annotations

import signal
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor

from paceline.errors import Diverged, PacelineError, StrategyError
from paceline.strategy.strategy import Strategy, preset
from paceline.testing import Fault
from paceline.train import local
from paceline.train.checkpoint import load_checkpoint
from paceline.train.local import training
from paceline.train.local.collective import choose_collective
from paceline.train.local.communicator import Communicator, Forming, Rendezvous
from paceline.train.run import Run
from tests.train.local.small import assert_nothing_is_left, own_processes, workload
from tests.train.local.test_interrupting import assert_gone, started, updates, wait_for

__all__ = ["started"]  # a fixture
CUDA = ["cuda:0", "cuda:1", "cuda:2", "cuda:3"]


def trained(place: Path, strategy: Strategy | str, collective: str, workers: int = 2, **changes) -> tuple[Run, Tensor]:
    of_run = ("faults", "worker_timeout_s", "on_bad_gradient", "shards")
    options = {key: changes.pop(key) for key in of_run if key in changes}
    run = local.run(workload(**changes), strategy, workers=workers, collective=collective, out=place, **options)
    return run, torch.cat([tensor.flatten() for tensor in load_checkpoint(place).parameters.values()])


def difference(one: Tensor, other: Tensor) -> float:
    return float((one - other).norm() / other.norm())


@pytest.mark.parametrize(
    ("strategy", "workers", "changes"),
    [
        (preset("sync"), 3, {"batch": 60, "optimizer": "momentum", "lr": 0.05}),
        (preset("local-sgd", push_every=3, fetch_every=3), 2, {"network": f"{__package__}.small:with_batch_norm",
                                                              "dropout": None}),
    ],
    ids=["sync", "local-sgd with batch norm"],
)  # fmt: skip
def test_members_add_up_to_what_the_server_does(tmp_path, strategy, workers, changes):
    (shared, a), (gloo, b) = (trained(tmp_path / how, strategy, how, workers, **changes) for how in ("shared", "gloo"))
    assert difference(b, a) <= 1e-6
    assert gloo.distribution.ledger == shared.distribution.ledger
    assert (shared.distribution.collective, shared.distribution.sums) == ("shared", 0)
    d = gloo.distribution
    assert (d.collective, d.sums_given_up, d.faults) == ("gloo", 0, ())
    assert d.sums >= 0.75 * d.updates, "but for rounds at the end of an epoch that have too few batches"
    assert "groups add up with gloo" in gloo.step.reason
    assert_nothing_is_left()


def test_one_mixed_group_equals_sync_also_with_a_server_of_shards(tmp_path, undisturbed):
    run, found = trained(tmp_path / "mixed", preset("mixed", groups=1), "gloo", **member("sound", shards=2))
    assert run.distribution.sums > 0
    assert difference(found, undisturbed) <= 1e-6


def test_two_groups_add_up_apart(tmp_path):
    run, _ = trained(tmp_path / "two", preset("mixed", groups=2), "gloo", 4, epochs=6)
    d = run.distribution
    assert d.ledger.applied_by_epoch == (23,) * 6
    assert (d.ledger.dropped, d.sums_given_up) == (0, 0)
    assert d.sums >= 0.75 * d.updates


# Whoever dies

EPOCHS = 4


def member(name: str, **changes):
    return {"network": f"{__package__}.faulty_members:{name}", "dropout": None, "epochs": EPOCHS, **changes}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("run") / "sound", "sync", "shared", **member("sound"))[1]


@pytest.mark.parametrize(
    ("name", "met", "options"),
    [
        ("ends_before_the_sum", ["died"], {}),
        ("ends_after_the_sum", ["died"], {}),
        ("ends_while_forming", ["died"], {}),
        ("hangs_before_the_sum", ["hung"], {"worker_timeout_s": 2.0}),
        ("fails_once", [], {}),
    ],
)
def test_the_others_do_not_hang_and_nothing_counts_twice(tmp_path, undisturbed, name, met, options):
    run, found = trained(tmp_path / "run", "sync", "gloo", **member(name, **options))
    d = run.distribution
    assert [fault.what for fault in d.faults] == met
    assert d.ledger.applied_by_epoch == (23,) * EPOCHS
    assert (d.ledger.dropped, d.ledger.refused) == (0, 0)
    assert d.sums_given_up == 1
    assert d.sums > 25, "they are together again"
    assert difference(found, undisturbed) <= 1e-6
    assert_nothing_is_left()


def test_a_server_s_death_loses_no_sum(tmp_path, undisturbed):
    kills = tuple(Fault("kill", at) for at in (8, 20, 32))
    slow = Fault("slow", 0, 0, seconds=0.05)  # so that it is not over before all are met
    run, found = trained(tmp_path / "run", "sync", "gloo", **member("sound", faults=(slow, *kills)))
    d = run.distribution
    assert [fault.what for fault in d.faults] == ["server died"] * 3
    assert d.ledger.applied_by_epoch == (23,) * EPOCHS
    assert d.sums > 25
    assert difference(found, undisturbed) <= 1e-6


def test_a_payload_that_is_no_number_is_refused_by_name(tmp_path):
    corrupt = (Fault("corrupt", 10, 1),)
    run, _ = trained(tmp_path / "run", "sync", "gloo", faults=corrupt, on_bad_gradient="skip")
    d = run.distribution
    assert [(fault.what, fault.worker) for fault in d.faults] == [("refused", 1)]
    assert (d.ledger.refused, d.ledger.applied) == (1, 3 * 23 - 1)
    assert d.sums_given_up == 1
    with pytest.raises(Diverged, match=r"worker 1, task \d+, epoch \d+, step \d+"):
        local.run(workload(), "sync", workers=2, collective="gloo", faults=corrupt)


def test_a_collective_that_always_fails_ends_the_run_in_one_line():
    made = workload(network=f"{__package__}.faulty_members:fails_always", dropout=None)
    with pytest.raises(PacelineError, match=r"worker 1: gloo failed 5 times in a row: .*cable.*; use --collective sh"):
        local.run(made, "sync", workers=2, collective="gloo")
    assert_nothing_is_left()


def test_ctrl_c_leaves_nothing(tmp_path, started):
    process = started(tmp_path / "run", "sync", 1, "gloo")
    wait_for(lambda: updates(tmp_path / "run") > 10)
    children = own_processes(process.pid)
    assert len(children) == 3
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    assert_gone(children)
    saved = load_checkpoint(tmp_path / "run")
    run = local.resume(tmp_path / "run", changes={"epochs": saved.epoch + 2}, collective="gloo")
    assert run.distribution.ledger.applied_by_epoch == (23,) * (saved.epoch + 2)
    assert run.distribution.sums > 10


# On GPUs


@pytest.mark.gpu
def test_nccl_forms_adds_up_and_forms_anew():
    """With a single member, which is all that a single GPU has room for."""
    rendezvous = Rendezvous()
    for key in ("0/1", "0/2"):
        forming = Forming(partial(Communicator, "nccl", rendezvous.port, key, 0, 1, torch.zeros(9, device="cuda")))
        wait_for(forming.is_done)
        communicator = forming.result()
        communicator.vector.fill_(3.0)
        communicator.begin()
        wait_for(communicator.is_done)
        communicator.finish()
        assert communicator.vector.tolist() == [3.0] * 9
        communicator.abandon()
    rendezvous.close()


@pytest.mark.gpu
def test_a_worker_on_a_gpu_adds_up_with_nccl(tmp_path, monkeypatch):
    """By itself: all but the other members is as with several GPUs, where payloads lie and what is handed over."""
    _, a = trained(tmp_path / "shared", "sync", "shared", 1, device="cuda:0")
    monkeypatch.setattr(training, "choose_collective", lambda *_, **__: "nccl")
    run, b = trained(tmp_path / "nccl", "sync", "shared", 1, device="cuda:0")
    d = run.distribution
    assert (d.collective, d.sums, d.sums_given_up) == ("nccl", d.updates, 0)
    assert "untested on several GPUs" in run.step.reason
    assert difference(b, a) <= 1e-5


@pytest.mark.gpu
def test_workers_that_share_a_gpu_add_up_with_gloo(tmp_path):
    (_, a), (run, b) = (trained(tmp_path / how, "sync", how, device="cuda:0") for how in ("shared", "gloo"))
    assert run.distribution.sums > 0
    assert difference(b, a) <= 1e-5


# Which it is


@pytest.mark.parametrize(
    ("strategy", "workers", "devices", "found"),
    [
        (preset("sync"), 4, CUDA, "nccl"),
        (preset("mixed"), 4, CUDA, "nccl"),
        (preset("local-sgd"), 2, CUDA[:2], "nccl"),
        (preset("sync"), 1, CUDA[:1], "shared"),
        (preset("sync"), 2, ["cuda:0", "cuda:0"], "shared"),
        (preset("mixed"), 4, [*CUDA[:2], *CUDA[:2]], "shared"),
        (preset("mixed"), 2, CUDA[:2], "shared"),
        (preset("sync"), 2, ["cpu", "cpu"], "shared"),
        (preset("towers"), 2, CUDA[:2], "shared"),
        (preset("backup"), 3, CUDA[:3], "shared"),
        (preset("downpour"), 2, CUDA[:2], "shared"),
    ],
)
def test_auto_is_nccl_where_every_worker_has_a_gpu(monkeypatch, strategy, workers, devices, found):
    monkeypatch.setattr("paceline.train.local.collective.is_available", lambda backend: True)
    assert choose_collective("auto", strategy, workers, devices) == found
    assert choose_collective("auto", strategy, workers, devices, record_events=True) == "shared"


def test_members_that_share_a_gpu_cannot_have_nccl(monkeypatch):
    monkeypatch.setattr("paceline.train.local.collective.is_available", lambda backend: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_collective("nccl", preset("mixed"), 4, [*CUDA[:2], *CUDA[:2]]) == "nccl", "one for each of a group"
    with pytest.raises(StrategyError, match="the 3 workers of group 0 are on cuda:0, cuda:1, cuda:0: use --collective"):
        choose_collective("nccl", preset("sync"), 3, [*CUDA[:2], "cuda:0"])


@pytest.mark.parametrize(
    ("strategy", "options", "message"),
    [
        ("sync", {"collective": "mpi"}, "collective 'mpi' is unknown"),
        ("sync", {"collective": "nccl"}, "nccl needs a GPU for each member of a group; this machine has no GPUs"),
        ("downpour", {"collective": "gloo"}, "downpour has none, only workers by themselves"),
        ("backup", {"collective": "gloo"}, "backup goes on without some"),
        ("towers", {"collective": "gloo"}, "towers are averaged on the CPU"),
        ("mixed", {"collective": "gloo"}, "those of mixed with 2 workers have one each"),
        ("sync", {"collective": "gloo", "record_events": True}, "no replay can repeat: leave out --record-events"),
    ],
)
def test_what_cannot_be_added_up_is_refused_before_anything_starts(monkeypatch, strategy, options, message):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(StrategyError, match=message) as caught:
        local.run(workload(), strategy, workers=2, **options)
    assert caught.value.exit_code == 2
