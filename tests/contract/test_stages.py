"""Phases of some epochs only, whose parameters are in part the same, are distributed as any others."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from paceline.strategy.presets import PRESETS, find_strategy
from paceline.training import trainer
from paceline.training.checkpoint import load_checkpoint
from paceline.workload import Workload
from tests.contract.drivers import ALL_DRIVERS, DRIVERS, train
from tests.step.staged_networks import Stacked

EPOCHS = 6


def staged(**changes) -> Workload:
    place = "tests.step.staged_networks"
    given = {"lr": 0.05, "batch": 8, "epochs": EPOCHS, "device": "cpu", "threads": 1, "optimizer": "adam", **changes}
    return Workload(network=f"{place}:make", data=f"{place}:data", **given)


def one_process(workload: Workload, directory) -> Tensor:
    trainer.run(workload, out=directory, step="flat")
    return torch.cat([p.flatten() for p in load_checkpoint(directory).parameters.values()])


@pytest.mark.parametrize("driver", ALL_DRIVERS)
@pytest.mark.parametrize("name", ["sync", "downpour", "delay-compensated", "local-sgd"])
def test_one_worker_is_one_process(driver, name, tmp_path):
    strategy = find_strategy(name, push_every=1, **({"fetch_every": 1} if name != "local-sgd" else {}))
    found = train(driver, staged(), strategy, 1, tmp_path / "run")
    torch.testing.assert_close(found.parameters, one_process(staged(), tmp_path / "alone"), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("driver", DRIVERS)
def test_so_it_is_with_clipped_gradients(driver, tmp_path):
    workload = staged(clip_norm=0.1, epochs=5)
    found = train(driver, workload, find_strategy("sync"), 1, tmp_path / "run")
    torch.testing.assert_close(found.parameters, one_process(workload, tmp_path / "alone"), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", PRESETS)
def test_what_is_not_trained_stays_as_it_is(name, tmp_path):
    """In the first two epochs that is all but the first layer, also where there is an L2 penalty."""
    found = train("virtual", staged(epochs=2, l2=0.01), find_strategy(name), 4, tmp_path / "run")
    start = torch.cat([p.detach().flatten() for p in Stacked().parameters()])
    trained = sum(p.numel() for p in Stacked().first.parameters())
    assert torch.equal(found.parameters[trained:], start[trained:])
    assert not torch.equal(found.parameters[:trained], start[:trained])


def test_two_workers_of_the_local_driver_train_stage_by_stage_and_can_be_resumed(tmp_path):
    from paceline.training.drivers.local import launcher

    run = launcher.run(staged(epochs=3), find_strategy("downpour"), workers=2, out=tmp_path / "run")
    assert (run.status, run.stages, len(run.epochs)) == ("finished", (3,), 3)
    again = launcher.resume(tmp_path / "run", changes={"epochs": EPOCHS})
    assert (again.status, again.stages, len(again.epochs)) == ("finished", (3, 5), EPOCHS)
    assert [math.isnan(epoch.train_accuracy) for epoch in again.epochs] == [True] * 4 + [False] * 2
