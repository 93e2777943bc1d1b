"""float16 trains as a hand-written loop with `torch.amp` does: the same losses, scales and skipped updates."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch.nn import functional as F

import paceline
from paceline.errors import PacelineError, WorkloadError
from paceline.step import loss_scaling
from paceline.step.build import assemble, load_data
from paceline.step.loss_scaling import scalers_of
from paceline.step.make import make_step
from paceline.step.step import Parts
from paceline.step.tally import Tally
from paceline.training import trainer
from paceline.training.step_choice import choose_step
from paceline.workload import resolve
from tests.training.deaths import Death, DiesAfter, parameters, same

SMALL = {"data": "digits:96", "batch": 16, "epochs": 2, "device": "cpu", "threads": 1, "precision": "float16"}
STEPS = 12


def parts_of(network: str, **settings: object) -> Parts:
    workload = resolve(network, {**SMALL, **settings})
    return assemble(workload, load_data(workload), torch.device("cpu"))


def by_hand(parts: Parts, scale: float, interval: int) -> list[tuple[float, float]]:
    """The loss of each step and the scale after it, by the recipe in PyTorch's documentation."""
    w, network = parts.workload, parts.network
    scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=interval)
    if w.optimizer == "adam":
        optimizer: torch.optim.Optimizer = torch.optim.Adam(network.parameters(), lr=w.lr, weight_decay=w.l2)
    else:
        optimizer = torch.optim.SGD(network.parameters(), lr=w.lr, momentum=w.momentum, weight_decay=w.l2)
    found = []
    for epoch in range(w.epochs):
        for x, y in parts.feeder.batches(epoch):
            optimizer.zero_grad()
            losses = []
            for part, target in zip(x.chunk(w.accumulate), y.chunk(w.accumulate), strict=True):
                with torch.autocast("cpu", torch.float16):
                    loss = F.cross_entropy(network(part), target) / w.accumulate
                scaler.scale(loss).backward()
                losses.append(loss.item())
            if w.clip_norm:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(network.parameters(), w.clip_norm)
            scaler.step(optimizer)
            scaler.update()
            found.append((sum(losses), scaler.get_scale()))
    return found


@pytest.mark.parametrize("kind", ["plain", "flat"])
@pytest.mark.parametrize(
    "settings",
    [{}, {"clip_norm": 0.5}, {"accumulate": 2}, {"optimizer": "adam", "lr": 0.001}],
    ids=lambda settings: next(iter(settings), "momentum"),
)
def test_losses_and_scales_are_those_of_torch_amp(kind, settings, monkeypatch):
    scale, interval = 2.0**21, 3  # the first updates overflow, and the scale grows again within the test
    monkeypatch.setattr(loss_scaling, "INITIAL_SCALE", scale)
    monkeypatch.setattr(loss_scaling, "GROWTH_INTERVAL", interval)
    settings = {"optimizer": "momentum", "lr": 0.02, "l2": 0.01, **settings}
    expected = by_hand(parts_of("lenet5", **settings), scale, interval)
    parts = parts_of("lenet5", **settings)
    step, _ = make_step(parts, kind)
    (scaler,) = scalers_of(parts.phases)
    found = []
    for epoch in range(2):
        step.begin(epoch)
        for _ in range(STEPS // 2):
            tally = Tally(1)
            step.advance(1, tally)
            found.append((tally.read().loss, float(scaler.state["scale"])))
    scales = [scale, *(s for _, s in expected)]
    steps_down = sum(b < a for a, b in pairwise(scales))
    assert 2 <= steps_down < STEPS and any(b > a for a, b in pairwise(scales))
    assert [s for _, s in found] == [s for _, s in expected]
    assert [loss for loss, _ in found] == pytest.approx([loss for loss, _ in expected], rel=2e-3)
    assert int(scaler.state["skipped"]) == steps_down


@pytest.mark.parametrize("step", ["plain", "flat"])
def test_a_resumed_run_continues_with_its_scale(step, tmp_path, monkeypatch):
    monkeypatch.setattr(trainer, "CHUNK_S", 1e-6)
    monkeypatch.setattr(loss_scaling, "INITIAL_SCALE", 2.0**21)
    monkeypatch.setattr(loss_scaling, "GROWTH_INTERVAL", 3)
    workload = resolve("lenet5", {**SMALL, "optimizer": "momentum", "lr": 0.02})
    whole = trainer.run(workload, step=step, out=tmp_path / "whole", checkpoint_every_s=0)
    with pytest.raises(Death):
        trainer.run(workload, step=step, out=tmp_path / "killed", checkpoint_every_s=0, watcher=DiesAfter(3))
    resumed = trainer.resume(tmp_path / "killed", checkpoint_every_s=0)
    assert same(parameters(tmp_path / "killed"), parameters(tmp_path / "whole"))
    assert resumed.skipped_updates == whole.skipped_updates >= 2
    assert whole.updates == STEPS and whole.facts()["skipped updates"] == whole.skipped_updates


def test_a_run_without_overflow_skips_nothing():
    run = paceline.train("lenet5", **{**SMALL, "lr": 0.001})
    assert run.step.kind == "flat" and run.skipped_updates == 0 and "skipped updates" not in run.facts()


def test_scaling_has_a_row_in_measurements():
    found = paceline.measure("lenet5", iterations=40, **SMALL)
    assert found.parts_s["scale"] > 0 and found.parts_s["update"] > 0


@pytest.mark.parametrize("kind", ["graph", "compiled"])
def test_a_captured_or_compiled_step_is_refused(kind):
    with pytest.raises(WorkloadError, match=f"step '{kind}' is not possible here: with precision 'float16'"):
        choose_step(parts_of("lenet5"), kind)


@pytest.mark.parametrize(
    "settings",
    [
        {"workers": 2},
        {"strategy": "downpour", "workers": 2, "driver": "virtual"},
        {"strategy": "sync", "workers": 2, "driver": "ray"},
        {"tensor": 2},
    ],
)
def test_several_processes_are_refused(settings):
    with pytest.raises(PacelineError, match=r"precision 'float16' scales the loss, which is for training in one"):
        paceline.train("mlp", **SMALL, **settings)


def test_several_phases_are_refused():
    with pytest.raises(WorkloadError, match="precision 'float16' scales the loss of a network with one loss"):
        parts_of("gan", data="synthetic:1x28x28/10:96")
