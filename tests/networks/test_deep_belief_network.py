"""The deep belief network: machines are trained in turn, then all layers, also from the weights of another run."""

from __future__ import annotations

import pytest
import torch

from paceline.errors import NetworkError
from paceline.networks import build
from paceline.training.checkpoint import load_checkpoint
from paceline.training.trainer import run
from paceline.workload import Workload, resolve

SMALL = {
    "data": "digits",
    "batch": 20,
    "device": "cpu",
    "threads": 1,
    "options.hidden": [32, 16],
    "options.pretrain": 2,
}


def workload(**settings) -> Workload:
    return resolve("dbn", {**SMALL, **settings})


def test_machines_are_trained_in_turn_and_then_the_whole_at_its_own_rate():
    first, second, whole = build("dbn", shape=(1, 8, 8), classes=10, pretrain=3, rate=0.2).criteria()
    assert [each.epochs for each in (first, second, whole)] == [(0, 3), (3, 6), (6, None)]
    assert (first.rate, second.rate, whole.rate) == (1.0, 1.0, 0.2)
    assert [*map(id, first.parameters), *map(id, second.parameters)] == [*map(id, whole.parameters)][:6]
    (only,) = build("dbn", shape=(1, 8, 8), classes=10, pretrain=0).criteria()
    assert only.name == "fine-tune" and only.epochs == (0, None)


def test_a_machine_learns_from_the_hidden_units_below_it():
    torch.manual_seed(0)
    network = build("dbn", shape=(6,), classes=2, kind="table", hidden=[5, 4], init="small:0.5")
    x, y = torch.rand(7, 6), torch.zeros(7, dtype=torch.int64)
    torch.manual_seed(1)
    found = network.criteria()[1].loss(x, y)
    torch.manual_seed(1)
    below = torch.sigmoid(network.rbm1.hidden(x)).detach()
    torch.testing.assert_close(found, network.rbm2.divergence(below))
    found.backward()
    assert network.rbm1.hidden.weight.grad is None and network.rbm2.hidden.weight.grad is not None
    scores = network(x)
    expected = network.output(torch.sigmoid(network.rbm2.hidden(torch.sigmoid(network.rbm1.hidden(x)))))
    torch.testing.assert_close(scores, expected)


def test_it_is_pre_trained_without_labels_and_fine_tuned_from_there(tmp_path):
    whole = run(workload(epochs=24, lr=0.01), out=tmp_path / "whole")
    assert whole.stages == (3, 5) and whole.test_accuracy > 0.85
    before = run(workload(epochs=4, lr=0.01), out=tmp_path / "before")
    assert before.status == "finished" and before.stages == (3,)
    never = "dbn ends before its phase 'fine-tune', which begins in epoch 5: train for more than `epochs=4`"
    assert never in before.warnings and not whole.warnings
    settings = {"epochs": 20, "lr": 0.01, "options.pretrain": 0, "init": str(tmp_path / "before")}
    after = run(workload(**settings), out=tmp_path / "after")
    assert after.test_accuracy > 0.85
    short = run(workload(**{**settings, "lr": 1e-9, "epochs": 1}), out=tmp_path / "short")
    assert short.status == "finished"
    one, other = (load_checkpoint(tmp_path / name).parameters for name in ("before", "short"))
    for name, value in one.items():
        torch.testing.assert_close(other[name], value, rtol=0, atol=1e-6)


def test_weights_of_another_network_are_refused(tmp_path):
    run(resolve("mlp", {"data": "digits:100", "epochs": 1, "device": "cpu"}), out=tmp_path)
    with pytest.raises(NetworkError, match="does not hold parameters of this network") as raised:
        build("dbn", shape=(1, 8, 8), classes=10, init=str(tmp_path))
    assert "\n" not in str(raised.value)
    (tmp_path / "checkpoint.pt").write_bytes(b"no checkpoint")
    with pytest.raises(NetworkError, match="does not hold parameters of this network"):
        build("mlp", shape=(1, 8, 8), classes=10, init=str(tmp_path))


@pytest.mark.parametrize(
    ("option", "value"), [("pretrain", -1), ("pretrain", 0.5), ("rate", 0), ("rate", "low"), ("k", 0)]
)
def test_other_options_are_refused(option, value):
    with pytest.raises(NetworkError, match=f"option {option} = {value!r} must be"):
        build("dbn", shape=(1, 8, 8), classes=10, **{option: value})
