"""What the local driver computes: the same as one process where it must, and a whole record of it."""

from __future__ import annotations

import pytest
import torch

from paceline.record import load
from paceline.strategy.strategy import preset
from paceline.train import local, trainer
from paceline.train.checkpoint import load_checkpoint
from paceline.train.evaluate import evaluate
from tests.train.local.small import assert_nothing_is_left, workload


@pytest.fixture(scope="module")
def asynchronous(tmp_path_factory):
    """One asynchronous run, looked at by several tests."""
    place = tmp_path_factory.mktemp("run") / "downpour"
    run = local.run(workload(epochs=12), "downpour", workers=2, out=place)
    return run, place


def test_synchronous_workers_equal_one_process_with_the_joined_batch(tmp_path):
    together = local.run(workload(batch=32, epochs=5), "sync", workers=2, out=tmp_path / "sync")
    alone = trainer.run(workload(batch=64, epochs=5), out=tmp_path / "alone")
    a, b = (load_checkpoint(tmp_path / name).parameters for name in ("sync", "alone"))
    flat = [torch.cat([tensor.flatten() for tensor in parameters.values()]) for parameters in (a, b)]
    assert together.updates == alone.updates == 115
    assert (flat[0] - flat[1]).norm() <= 1e-5 * flat[1].norm()
    assert together.test_accuracy == pytest.approx(alone.test_accuracy, abs=0.003)


def test_an_asynchronous_run_learns_and_leaves_nothing_behind(asynchronous):
    run, _ = asynchronous
    assert run.status == "finished"
    assert run.test_accuracy > 0.9
    assert [epoch.epoch for epoch in run.epochs] == list(range(1, 13))
    assert run.epochs[-1].loss < run.epochs[0].loss
    assert run.epochs[-1].train_accuracy > 0.9
    assert_nothing_is_left()


def test_every_batch_is_in_the_ledger_once(asynchronous):
    ledger = asynchronous[0].distribution.ledger
    assert ledger.applied_by_epoch == (23,) * 12
    assert (ledger.dropped, ledger.refused, ledger.returned) == (0, 0, 0)
    assert sum(ledger.staleness.values()) == ledger.updates == asynchronous[0].updates == 276


def test_the_record_says_what_each_worker_did(asynchronous):
    run, place = asynchronous
    d = run.distribution
    assert (d.driver, d.workers, d.strategy) == ("local", 2, preset("downpour"))
    assert sum(worker.batches for worker in d.by_worker) == d.steps == 276
    assert sum(worker.samples for worker in d.by_worker) == 12 * 1437
    assert all(0 < worker.accuracy <= 1 and worker.lives == 1 for worker in d.by_worker)
    assert 0 < d.server_s < d.seconds
    assert d.faults == ()
    assert load(place) == run


def test_the_checkpoint_holds_what_was_tested(asynchronous):
    run, place = asynchronous
    assert evaluate(place).accuracy == run.test_accuracy


def test_batch_norm_and_a_network_of_ones_own(tmp_path, monkeypatch):
    made = workload(network=f"{__package__}.small:with_batch_norm", dropout=None, epochs=8)
    run = local.run(made, preset("mixed", groups=2), workers=2, out=tmp_path / "run")
    saved = load_checkpoint(tmp_path / "run").parameters
    assert saved["2.running_var"].std() > 0
    assert run.test_accuracy > 0.8


def test_a_user_s_own_correction_runs_in_the_server():
    run = local.run(workload(epochs=2), preset("delay-compensated", correction=f"{__name__}:nothing"), workers=2)
    assert run.updates == 46
    assert run.epochs[0].test_loss == run.epochs[1].test_loss, "nothing was to be learnt"


def nothing(g, w, backup, staleness, state):
    return g.zero_()
