"""Every built-in network, precision, loss and optimizer trains for a few steps as named on the command line."""

from __future__ import annotations

import math

import pytest

import paceline as package
from paceline.built_in import BUILT_IN
from paceline.workload import LOSSES, OPTIMIZERS
from tests.cpu_abilities import has_bfloat16_lstm

SMALL = {
    "mlp": ["--data", "digits:64", "--batch", "16"],
    "dnn": ["--data", "digits:64", "--batch", "16"],
    "rnn": ["--data", "digits:64", "--batch", "16"],
    "gru": ["--data", "digits:64", "--batch", "16"],
    "lstm": ["--data", "digits:64", "--batch", "16"],
    "lenet5": ["--data", "digits:64", "--batch", "16"],
    "alexnet": ["--data", "synthetic:3x64x64/4:8", "--batch", "4"],
    "vgg11": ["--data", "synthetic:3x32x32/4:4", "--batch", "4"],
    "vgg16": ["--data", "synthetic:3x32x32/4:4", "--batch", "4"],
    "googlenet": ["--data", "synthetic:3x64x64/4:8", "--batch", "4"],
    "resnet18": ["--data", "synthetic:3x32x32/4:8", "--batch", "4"],
    "resnet50": ["--data", "synthetic:3x32x32/4:4", "--batch", "4"],
    "resnet20": ["--data", "synthetic:3x16x16/4:8", "--batch", "4"],
    "textlstm": ["--data", "text:16", "--batch", "8"],
    "transformer": ["--data", "text:16", "--batch", "8"],
    "recursive": ["--data", "logic:3:64", "--batch", "16"],
    "rbm": ["--data", "digits:64", "--batch", "16"],
    "dbn": ["--data", "digits:64", "--batch", "16", "--set", "options.pretrain=0"],
    "autoencoder": ["--data", "digits:64", "--batch", "16"],
    "vae": ["--data", "digits:64", "--batch", "16"],
    "cvae": ["--data", "digits:64", "--batch", "16"],
    "deconvolutional": ["--data", "digits:64", "--batch", "16"],
    "gan": ["--data", "digits:64", "--batch", "16"],
}
# Without velocities the checkpoints of the largest are half a gigabyte smaller.
for large in ("alexnet", "vgg11", "vgg16"):
    SMALL[large] += ["--optimizer", "sgd"]
SMALLER = {"transformer": ["--set", "options.depth=1", "--set", "options.width=32", "--set", "options.heads=2"]}
"""Where a network was trained as it is, other tests need not."""
ALWAYS = ["--epochs", "1", "--device", "cpu", "--threads", "1"]


def trained(paceline, tmp_path, network: str, *arguments: str) -> package.Run:
    result = paceline("train", network, *SMALL[network], *ALWAYS, "--out", "run", *arguments)
    assert result.code == 0, result.err
    run = package.load(tmp_path / "run")
    assert run.status == "finished" and run.updates == -(-samples(network) // run.workload.batch)
    assert math.isfinite(run.epochs[0].loss) and math.isfinite(run.test_loss)
    assert run.epochs[0].test_metric >= 0 if run.metric else 0 <= run.test_accuracy <= 1
    return run


def samples(network: str) -> int:
    return int(SMALL[network][1].rpartition(":")[2])


def test_there_is_small_data_for_every_network():
    assert SMALL.keys() == BUILT_IN.keys()


LARGE = ("alexnet", "vgg11", "vgg16", "googlenet", "resnet50")  # of seconds, or of half a gigabyte


@pytest.mark.parametrize("network", [pytest.param(n, marks=pytest.mark.slow if n in LARGE else ()) for n in SMALL])
def test_networks(paceline, tmp_path, network, monkeypatch):
    if network in LARGE:  # half a gigabyte is not written twice; the tests of checkpoints have smaller ones
        monkeypatch.setattr("paceline.training.training_run.save_checkpoint", lambda *_: None)
    run = trained(paceline, tmp_path, network)
    assert run.conditions.threads == 1 and run.step.kind == "flat"


@pytest.mark.parametrize(
    ("network", "precision"),
    [
        ("dnn", "float64"), ("lenet5", "float64"), pytest.param("transformer", "float64", marks=pytest.mark.slow),
        ("lstm", "bfloat16"), ("lenet5", "bfloat16"), ("resnet20", "bfloat16"),
        pytest.param("transformer", "bfloat16", marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_precisions(paceline, tmp_path, network, precision):
    if (network, precision) == ("lstm", "bfloat16") and not has_bfloat16_lstm():
        result = paceline("train", network, "--data", "digits", "--epochs", "1", "--precision", precision)
        assert "PyTorch has no such kernel for lstm on this CPU" in result.refused()
        return
    run = trained(paceline, tmp_path, network, *SMALLER.get(network, []), "--precision", precision)
    assert run.conditions.precision == precision


@pytest.mark.parametrize("network", ["lenet5", pytest.param("transformer", marks=pytest.mark.slow)])
@pytest.mark.parametrize("loss", [loss for loss in LOSSES if loss != "model"])  # built-in networks return no loss
def test_losses(paceline, tmp_path, network, loss):
    run = trained(paceline, tmp_path, network, *SMALLER.get(network, []), "--set", f"loss={loss}")
    assert run.workload.loss == loss


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("step", ["plain", "flat"])
def test_optimizers(paceline, tmp_path, optimizer, step):
    run = trained(paceline, tmp_path, "mlp", "--optimizer", optimizer, "--step", step, "--lr", "0.01")
    assert run.step.kind == step


@pytest.mark.parametrize("threads", [1, 2])
def test_as_many_threads_as_asked_for(paceline, tmp_path, threads):
    assert trained(paceline, tmp_path, "mlp", "--threads", str(threads)).conditions.threads == threads
