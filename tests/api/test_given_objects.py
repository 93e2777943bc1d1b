"""Modules, functions and data that are given in Python work as a name does, in this process and in others."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import paceline
from paceline.errors import InputError, NetworkError, WorkloadError
from paceline.held_objects import _held

SMALL = {"data": "digits", "epochs": 1, "lr": 0.1, "threads": 1}


class Net(nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.output = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.output(x.flatten(1))


def build() -> nn.Module:
    return Net()


def arrays() -> tuple[np.ndarray, ...]:
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(200, 8)).astype(np.float32), generator.integers(0, 3, size=200)
    return x[:160], y[:160], x[160:], y[160:]


@pytest.fixture(autouse=True)
def nothing_is_held_afterwards():
    yield
    assert _held == {}


def test_a_module_is_trained_in_place_and_from_its_own_weights():
    network = Net()
    nn.init.zeros_(network.output.weight)
    before = paceline.train(network, **SMALL | {"lr": 1e-12})
    assert network.output.weight.abs().max() < 1e-6 and before.workload.network == "object:Net"
    run = paceline.train(network, **SMALL)
    assert network.output.weight.abs().max() > 0.01 and run.test_accuracy > 0.5


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("how", [{}, {"strategy": "downpour", "driver": "virtual"}])
def test_training_differentiates_whatever_mode_its_caller_is_in(mode, how):
    alone = paceline.train(build, **how, **SMALL)
    with mode():
        found = paceline.train(build, **how, **SMALL)
    assert found.test_loss == alone.test_loss


@pytest.mark.parametrize("how", [{"workers": 2}, {"strategy": "downpour", "driver": "virtual"}])
def test_a_module_of_this_program_is_trained_by_workers(how):
    class Local(Net):  # not importable: it travels by value
        pass

    network = Local()
    nn.init.zeros_(network.output.weight)  # a dozen updates do not get far from every random start
    before = network.output.weight.detach().clone()
    run = paceline.train(network, **how, **SMALL | {"lr": 0.5})  # one epoch suffices for any initial weights
    assert run.distribution.workers == 2 and run.test_accuracy > 0.5
    assert (network.output.weight - before).abs().max() > 0.01


def test_what_cannot_travel_to_workers_is_one_line():
    network = Net()
    network.lock = (i for i in range(3))  # a generator cannot be sent to another process
    with pytest.raises(InputError, match="network Net cannot be sent to other processes"):
        paceline.train(network, workers=2, **SMALL)


@pytest.mark.parametrize("workload", [build, "tests.api.test_given_objects:build"])
def test_a_function_stands_for_the_module_it_returns(workload):
    run = paceline.train(workload, **SMALL)
    assert run.workload.network == "tests.api.test_given_objects:build" and run.test_accuracy > 0.3


@pytest.mark.parametrize("workers", [1, 2])
def test_arrays_are_given_as_they_are(workers):
    network = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    run = paceline.train(network, workers=workers, data=arrays(), epochs=1, batch=16)
    assert run.updates == 10 // workers and run.workload.data.startswith("object:")


def test_a_run_of_a_module_is_resumed_and_evaluated_with_the_module(tmp_path):
    network = Net()
    first = paceline.train(network, out=tmp_path / "run", **SMALL)
    with pytest.raises(WorkloadError, match=r"Net was passed as a Python object, which is not stored: pass it again"):
        paceline.resume(tmp_path / "run", epochs=2)
    with pytest.raises(WorkloadError, match="pass it again"):
        paceline.evaluate(tmp_path / "run")
    assert paceline.evaluate(tmp_path / "run", model=Net()).accuracy == first.test_accuracy
    again = paceline.resume(tmp_path / "run", Net(), **SMALL | {"epochs": 2})
    assert len(again.epochs) == 2 and again.epochs[0] == first.epochs[0]


def test_measuring_and_predicting_leave_a_module_as_it_is():
    network = Net()
    before = network.output.weight.detach().clone()
    measured = paceline.measure(network, data="digits", iterations=20, threads=1)
    predicted = paceline.predict(network, "H200", data="digits")
    assert torch.equal(network.output.weight, before)
    assert "output" in {layer.name for layer in measured.layers} & {layer.name for layer in predicted.layers}


def test_simulating_and_planning_take_a_module():
    made = paceline.simulate(Net(), workers=4, data="digits", compute_time=0.01, bandwidth=1e6, steps=5)
    assert made.message_bytes == 4 * 650
    planned = paceline.plan(Net(), "g2-standard-8", data="digits", epochs=1, strategies="sync")
    assert planned.pick.candidate.machine == "g2-standard-8"


@pytest.mark.parametrize(
    ("workload", "settings", "words"),
    [
        (Net(), {}, "Net needs data: pass data="),
        (Net(3), {"data": "digits"}, "does not take digits's samples of shape"),
        (
            nn.Linear(8, 3),
            {"data": (torch.zeros(64, 8), torch.zeros(64, 2)), "batch": 4},
            "loss cross-entropy does not fit the output of Linear: the output is [4, 3] float32, the target [4, 2] ",
        ),
        (
            nn.Sequential(nn.Linear(8, 1), nn.Flatten(0)),
            {"data": (torch.zeros(64, 8), torch.zeros(64)), "batch": 4},
            "output has the shape [4], and this loss needs a score per class; for one number per sample use ",
        ),
        (3, {}, "workload=3 should be a name"),
        (None, {}, "workload=None should be a name"),
        ("lenet", {}, "no network 'lenet': did you mean lenet5"),
        ("nothing.toml", {}, "nothing.toml: no such file"),
        ("nothing:at_all", {}, "no module 'nothing'"),
        (lambda: 3, {"data": "digits"}, "returned an int; it should return an nn.Module"),
        (lambda: 1 / 0, {"data": "digits"}, "failed: ZeroDivisionError"),
        ("mlp", {"network": "dnn"}, "network is the first argument"),
        ("mlp", {"epoch": 3}, "no setting 'epoch': did you mean epochs"),
        ("mlp", {"worker": 3}, "no setting 'worker': did you mean workers"),
        ("mlp", {"epochs": 1.5}, "epochs=1.5 should be a whole number"),
        ("mlp", {"out": 5}, "out=5 should be a path"),
        ("mlp", {"out": ""}, "out='' should be a path"),
        ("mlp", {"checkpoint_every": -1}, "checkpoint_every=-1 should be a number of at least 0"),
        ("mlp", {"learning_rate": 0.1}, "no setting 'learning_rate': did you mean lr?"),
        ("mlp", {"batch_size": 3}, "no setting 'batch_size': did you mean batch?"),
        ("mlp", {"optimizer": "adma"}, "(or a custom module:name)?"),
        ("mlp", {"groups": "2x"}, "`groups='2x'` should be GxK"),
        ("mlp", {"metric": lambda outputs, targets: outputs.reshape(7, 7, 7, 7)}, "failed: RuntimeError: "),
        ("mlp", {"data": "parquet:none.parquet"}, "cannot read none.parquet: No such file or directory"),
        ("mlp", {"data_dir": 5}, "data_dir=5 should be a path"),
        ("mlp", {"driver": "cluster"}, "driver 'cluster' is unknown"),
        ("mlp", {"workers": 2.5}, "workers=2.5 should be a whole number"),
        ("mlp", {"workers": -1}, "workers=-1 should be"),
        ("mlp", {"strategy": "downpuor"}, "no strategy 'downpuor': did you mean downpour"),
        ("mlp", {"push_every": 3}, "needs `workers` or a `strategy`"),
        ("mlp", {"measure": True}, "measure=True saves the measurement in the run's directory"),
        ("mlp", {"tensorboard": "events"}, "tensorboard= needs out="),
        ("mlp", {"step": "fast"}, "step 'fast'"),
    ],
)
def test_a_mistake_is_one_line(workload, settings, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as raised:
        paceline.train(workload, **settings)
    assert words in str(raised.value) and "\n" not in str(raised.value)
    assert list(tmp_path.iterdir()) == []


class Failing(Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training and x.shape[0] > 2:
            raise RuntimeError("the sensor is off\nand more")
        return super().forward(x)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_module_that_fails_while_training_is_named(workers):
    with pytest.raises(paceline.PacelineError, match="RuntimeError: the sensor is off") as raised:
        paceline.train(Failing(), workers=workers, **SMALL)
    assert "\n" not in str(raised.value)


def test_one_worker_without_a_strategy_is_this_process_unless_asked():
    assert paceline.train("mlp", workers=1, **SMALL).distribution is None
    assert paceline.train("mlp", workers=1, driver="virtual", **SMALL).distribution.workers == 1
    assert paceline.train("mlp", "downpour", driver="virtual", **SMALL).distribution.workers == 2


def test_a_network_that_does_not_fit_is_a_network_error():
    with pytest.raises(NetworkError):
        paceline.train(Net(3), **SMALL)


def test_a_target_that_is_not_finite_is_named():
    y = torch.zeros(64)
    y[7] = torch.nan
    with pytest.raises(paceline.PacelineError, match=r"y of training sample 7 is not finite"):
        paceline.train(
            nn.Linear(8, 1), data=((torch.zeros(64, 8), y), (torch.zeros(8, 8), y[:8])), loss="squared", epochs=1
        )


@pytest.mark.parametrize("how", [{}, {"loss": nn.functional.cross_entropy}, {"workers": 2}])
def test_a_network_may_classify_every_pixel(how):
    torch.manual_seed(0)
    x = torch.randn(48, 1, 6, 5)
    y = (x[:, 0] > 0).long() + (x[:, 0] > 1).long()
    network = nn.Sequential(nn.Conv2d(1, 8, 1), nn.Tanh(), nn.Conv2d(8, 3, 1))
    settings = {"batch": 16, "epochs": 60, "optimizer": "adam", "lr": 0.03, "threads": 1, "device": "cpu", "top": 2}
    run = paceline.train(network, data=((x[:32], y[:32]), (x[32:], y[32:])), **settings, **how)
    with torch.no_grad():
        scores = network(x[32:])
    assert run.test_accuracy == pytest.approx(float((scores.argmax(1) == y[32:]).float().mean())) and (
        run.test_accuracy > 0.9
    )
    assert run.test_loss == pytest.approx(float(nn.functional.cross_entropy(scores, y[32:])), rel=1e-4)
