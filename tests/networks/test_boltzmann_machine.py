"""The restricted Boltzmann machine: its gradient is that of the papers, and its free energy tells digits from noise."""

from __future__ import annotations

import itertools

import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor

import paceline
from paceline import data
from paceline.errors import NetworkError
from paceline.networks import build
from paceline.networks.rbm import drawn
from paceline.step.build import placed_network
from paceline.training.trainer import run
from paceline.workload import resolve


def machine(**options):
    torch.manual_seed(0)
    network = build("rbm", shape=(6,), classes=2, kind="table", hidden=4, init="small:0.5", **options)
    torch.nn.init.normal_(network.visible.bias)
    return network.double()


def samples() -> Tensor:
    return torch.rand(9, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("start", ["data", "noise"])
def test_the_gradient_is_that_of_contrastive_divergence(start):
    """Of W it is <h v> of the negative samples less <h v> of the data, and so on (Hinton 2002, equation 5)."""
    network, v = machine(k=2, start=start), samples()
    torch.manual_seed(3)
    loss = network.divergence(v)
    found = torch.autograd.grad(loss, list(network.parameters()))
    torch.manual_seed(3)
    w, c, b = (p.detach() for p in (network.hidden.weight, network.hidden.bias, network.visible.bias))
    first = torch.sigmoid(drawn(torch.sigmoid(v @ w.t() + c)) @ w + b)
    negative = first if start == "data" else torch.rand_like(v)
    for _ in range(1 if start == "data" else 2):
        hidden = drawn(torch.sigmoid(drawn(negative) @ w.t() + c))
        negative = torch.sigmoid(hidden @ w + b)
    up, down = torch.sigmoid(v @ w.t() + c), torch.sigmoid(negative @ w.t() + c)
    expected = (down.t() @ negative - up.t() @ v) / 9, (down - up).mean(0), (negative - v).mean(0)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
    torch.testing.assert_close(loss.detach(), (first - v).square().mean())


def test_the_free_energy_sums_over_all_hidden_units():
    network, v = machine(), samples().round()
    units = torch.tensor(list(itertools.product([0.0, 1.0], repeat=4)), dtype=torch.float64)
    energies = -(v @ network.visible.bias).unsqueeze(1) - (network.hidden(v) @ units.t())
    torch.testing.assert_close(network.free_energy(v), -torch.logsumexp(-energies, dim=1))


def test_trained_on_digits_it_finds_them_likelier_than_noise(tmp_path):
    settings = {"data": "digits", "batch": 20, "lr": 0.1, "epochs": 10, "options.hidden": 64, "options.k": 5}
    workload = resolve("rbm", {**settings, "device": "cpu", "threads": 1})
    done = run(workload, out=tmp_path)
    assert done.metric == "reconstruction error" and done.classes == 0
    assert done.epochs[-1].test_metric < 0.8 * float(data.load("digits").test.x.var(0).mean())
    network = build("rbm", shape=(1, 8, 8), classes=10, hidden=64)
    network.load_state_dict(torch.load(tmp_path / "checkpoint.pt", weights_only=False)["parameters"])
    digits = data.load("digits").test.x
    torch.manual_seed(0)
    shuffled = digits.flatten(1).gather(1, torch.rand(len(digits), 64).argsort(1))
    assert auc(network, digits, shuffled) > 0.95 and auc(network, digits, torch.rand_like(digits)) > 0.99
    samples = network.generate(50, torch.Generator().manual_seed(0))
    assert samples.shape == (50, 1, 8, 8) and auc(network, samples, torch.rand(50, 64)) > 0.99
    figure = paceline.draw(tmp_path)
    assert len(figure.axes) == 3


def auc(network, likely: Tensor, unlikely: Tensor) -> float:
    """How often a likely sample has the lower free energy."""
    with torch.no_grad():
        energies = torch.cat([network.free_energy(likely), network.free_energy(unlikely)])
    return float(roc_auc_score([1] * len(likely) + [0] * len(unlikely), -energies))


def test_data_outside_the_unit_interval_are_refused():
    workload = resolve("rbm", {"data": "synthetic:1x8x8:40", "batch": 10, "device": "cpu"})
    with pytest.raises(NetworkError, match=r"rbm does not take synthetic:1x8x8: it takes numbers in \[0, 1\]"):
        placed_network(workload, data.load(workload.data), torch.device("cpu"))


def test_a_machine_that_diverged_draws_on():
    """A network that is not finite is reported by the training, not by a draw of its units."""
    assert drawn(torch.tensor([float("nan"), 1.0])).tolist() == [0.0, 1.0]
