"""A run in virtual time: what its record says when it does not end as it should, and of epochs that end together."""

from __future__ import annotations

import pytest
import torch

from paceline.errors import Diverged, PacelineError, StrategyError
from paceline.record import load
from paceline.simulation.virtual_cluster import Change, VirtualCluster
from paceline.strategy.presets import PRESETS, find_strategy
from paceline.training.virtual_run import run_virtual
from tests.contract.small_training import workload


def test_only_a_run_that_diverged_is_said_to_have(tmp_path):
    with pytest.raises(Diverged, match="lower the learning rate"):
        run_virtual(workload(lr=1e30, activation="relu"), "downpour", out=tmp_path / "run")
    assert load(tmp_path / "run").status == "diverged"


def test_a_run_whose_workers_are_gone_has_not_diverged(tmp_path):
    cluster = VirtualCluster(changes=(Change(3.5, 0, "leaves"), Change(3.5, 1, "leaves")))
    with pytest.raises(PacelineError, match="no worker is left"):
        run_virtual(workload(), "downpour", cluster=cluster, out=tmp_path / "run")
    found = load(tmp_path / "run")
    assert (found.status, found.updates) == ("failed", 6)


def fails(gradient, late):
    raise KeyError("late")


def ends(gradient, late):
    raise SystemExit(0)


@pytest.mark.parametrize(("name", "words"), [("fails", "failed: KeyError: 'late'"), ("ends", "ends the program")])
def test_nor_has_one_whose_correction_failed(name, words, tmp_path):
    strategy = find_strategy("delay-compensated", correction=f"{__name__}:{name}")
    with pytest.raises(StrategyError, match=f"correction {__name__}:{name} {words}"):
        run_virtual(workload(), strategy, out=tmp_path / "run")
    assert load(tmp_path / "run").status == "failed"


def test_epochs_that_end_together_share_the_time_they_took():
    """Worker 1 needs as long for one batch of the first epoch as worker 0 for all others and the second epoch."""
    run = run_virtual(workload(epochs=2), "downpour", cluster=VirtualCluster(speeds=(1.0, 1 / 400)))
    first, second = run.points
    assert first.seconds == second.seconds == 400
    assert run.epochs[0].samples_per_s == run.epochs[1].samples_per_s
    assert run.train_s == pytest.approx(2 * 1437 / run.epochs[0].samples_per_s)


def test_what_befalls_nobody_is_refused_before_anything_is_made(tmp_path):
    with pytest.raises(StrategyError, match="there is no worker 2"):
        run_virtual(workload(), cluster=VirtualCluster(changes=(Change(1.0, 2, "dies"),)), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("name", [*PRESETS, "torch.optim", "adam"])
def test_a_virtual_cluster_computes_on_a_gpu_what_it_does_on_the_cpu(name):
    strategy = find_strategy(name) if name in PRESETS else find_strategy("downpour")
    if name == "torch.optim":
        strategy = find_strategy("downpour", server_optimizer="torch.optim:RMSprop:0.001")
    settings = {"optimizer": "adam", "lr": 0.001} if name == "adam" else {"optimizer": "momentum"}
    losses = []
    for device in ("cpu", "cuda:0"):
        run = run_virtual(workload(epochs=2, device=device, **settings), strategy)
        losses.append([epoch.test_loss for epoch in run.epochs])
    assert losses[1] == pytest.approx(losses[0], rel=1e-2)
