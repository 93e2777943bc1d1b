"""Code of the user's own that does not fit, or fails while it trains, is answered with one line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import paceline as package

NETWORKS = """
import torch
from torch import nn
from paceline.step.optimizers import Rule
from paceline.step.phase import Outcome

class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.calls = nn.Linear(64, 10), 0

class Asserts(Base):
    def forward(self, x):
        assert x.dim() == 2
        return self.layer(x)

class Scalar(Base):
    def forward(self, x):
        return self.layer(x.flatten(1)).sum()

class Empty(Base):
    def forward(self, x):
        return ()

class OneOutput(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(64, 1))

class Normalised(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(64, 10), nn.BatchNorm1d(10))

class FailsInTraining(Base):
    def forward(self, x):
        if self.training:
            raise RuntimeError("first line\\nsecond line")
        return self.layer(x.flatten(1))

class FailsLate(Base):
    def forward(self, x):
        self.calls += 1
        if self.calls > 12:
            raise KeyError("late")
        return self.layer(x.flatten(1))

class OutOfMemory(FailsLate):
    def forward(self, x):
        self.calls += 1
        if self.calls > 12:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return self.layer(x.flatten(1))

class Machine(nn.Module):
    "A restricted Boltzmann machine: it has no forward pass."
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(0.1 * torch.randn(64, 16))

class Contrast:
    name, rule = "contrastive divergence", Rule("sgd", 0.1)
    def __init__(self, machine):
        self.parameters = [machine.weight]
    def gradient(self, batch, generator):
        (w,), v = self.parameters, batch[0].flatten(1)
        with torch.no_grad():
            h = torch.sigmoid(v @ w)
            back = torch.sigmoid(torch.bernoulli(h, generator=generator) @ w.t())
            again = torch.sigmoid(back @ w)
            return Outcome((v - back).square().mean(), [(back.t() @ again - v.t() @ h) / len(v)])

def phases(network, workload):
    return [Contrast(network)]

def numbers():
    x = torch.randn(60, 64)
    return x, x.sum(1), x[:9], x[:9].sum(1)

def broken_data():
    raise OSError("no such disk")
"""


@pytest.fixture
def own(paceline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "own_mistakes.py").write_text(NETWORKS)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "own_mistakes", raising=False)

    def call(network: str, *arguments: str):
        flags = ["--batch", "100", "--epochs", "1", "--device", "cpu", "--threads", "1", "--out", "run"]
        return paceline("train", f"own_mistakes:{network}", *flags, *arguments)

    yield call
    sys.modules.pop("own_mistakes", None)


@pytest.mark.parametrize(
    ("network", "expected"),
    [
        ("Asserts", "own_mistakes:Asserts does not take digits's samples of shape (1, 8, 8): AssertionError"),
        ("Scalar", "own_mistakes:Scalar turns 2 samples into an output of shape ()"),
        ("Empty", "own_mistakes:Empty returns a tuple; a loss needs a tensor"),
        ("OneOutput", "own_mistakes:OneOutput has 1 output, digits has 10 classes"),
        (
            "FailsInTraining",
            "own_mistakes:FailsInTraining fails on the first batch of digits: RuntimeError: first line",
        ),
    ],
)
def test_a_network_that_does_not_fit(own, network, expected):
    for loss in ("cross-entropy", "binary-cross-entropy"):
        assert own(network, "--set", f"loss={loss}").refused().startswith(expected)


def test_a_network_that_fails_later(own):
    assert own("FailsLate").refused(code=1) == "own_mistakes:FailsLate failed: KeyError: 'late'"


def test_too_little_memory(own):
    line = own("OutOfMemory").refused(code=1)
    assert line == "out of memory with batches of 100: use a smaller --batch or a smaller network"


def test_a_batch_of_one_sample_cannot_be_normalised(own, paceline):
    expected = "uses batch normalisation, and one batch has a single sample: choose another --batch than 4"
    assert expected in own("Normalised", "--data", "digits:9", "--batch", "4").refused()
    small = ["--data", "synthetic:3x32x32/4:5", "--batch", "4", "--epochs", "1", "--device", "cpu"]
    assert expected in paceline("train", "resnet18", *small).refused()


def test_targets_that_are_numbers(own, paceline, tmp_path):
    line = paceline("train", "mlp", "--data", "own_mistakes:numbers", "--batch", "20").refused()
    assert line.startswith("mlp needs classes as labels, but the targets of own_mistakes:numbers are numbers")
    data = ["--data", "own_mistakes:numbers", "--batch", "20"]
    assert "for targets that are numbers use --set loss=squared" in own("OneOutput", *data).refused()
    result = own("OneOutput", *data, "--set", "loss=squared")
    assert result.code == 0 and "test loss" in result.out and "top-1" not in result.out
    assert package.load(tmp_path / "run").test_loss > 0


def test_data_that_fail(own):
    line = own("Normalised", "--data", "own_mistakes:broken_data").refused()
    assert line == "data 'own_mistakes:broken_data' failed: OSError: no such disk"


def test_a_network_without_a_forward_pass_is_trained_and_tested_by_its_phases(own, paceline, tmp_path):
    assert own("Machine", "--set", "phases=own_mistakes:phases", "--epochs", "3").code == 0
    run = package.load(tmp_path / "run")
    assert run.epochs[2].test_loss < run.epochs[0].test_loss
    again = paceline("evaluate", "run", "--json", "-").json
    assert again["loss"] == pytest.approx(run.test_loss) and again["accuracy"] is None


def test_evaluating_a_network_on_data_it_does_not_take(own, paceline):
    assert own("Normalised").code == 0
    line = paceline("evaluate", "run", "--data", "synthetic:1x9x9/10").refused()
    assert line.startswith("own_mistakes:Normalised does not take synthetic:1x9x9/10's samples of shape (1, 9, 9)")


def test_too_many_threads(paceline):
    assert paceline("train", "mlp", "--threads", "2000000000").refused().startswith("threads=2000000000 is more than")
