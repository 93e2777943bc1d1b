"""Losses against their formulas, written with numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from paceline import networks
from paceline.errors import NetworkError
from paceline.step.losses import LOSSES, auxiliary_weight, total_loss
from paceline.workload import LOSSES as ALL_NAMES

rng = np.random.default_rng(0)
OUTPUT = rng.normal(size=(9, 4))
LABELS = rng.integers(0, 4, 9)
ONE_HOT = np.eye(4)[LABELS]


def softmax(z: np.ndarray) -> np.ndarray:
    return np.exp(z) / np.exp(z).sum(1, keepdims=True)


def sigmoid(z: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-z))


def hinge(z: np.ndarray, labels: np.ndarray) -> float:
    right = z[np.arange(len(z)), labels][:, None]
    margins = np.maximum(0, 1 - right + z)
    margins[np.arange(len(z)), labels] = 0
    return float(margins.sum(1).mean() / z.shape[1])


EXPECTED = {
    "cross-entropy": -np.log(softmax(OUTPUT)[np.arange(9), LABELS]).mean(),
    "binary-cross-entropy": -(ONE_HOT * np.log(sigmoid(OUTPUT)) + (1 - ONE_HOT) * np.log(1 - sigmoid(OUTPUT))).mean(),
    "squared": ((OUTPUT - ONE_HOT) ** 2).mean(),
    "hinge": hinge(OUTPUT, LABELS),
}


def test_every_name_of_a_workload_has_a_loss():
    assert {*LOSSES, "model"} == set(ALL_NAMES), "model is the loss that a network returns"
    assert set(LOSSES) == set(EXPECTED)


@pytest.mark.parametrize("name", LOSSES)
def test_labels(name):
    loss = LOSSES[name](torch.from_numpy(OUTPUT), torch.from_numpy(LABELS))
    assert loss.dim() == 0 and loss.item() == pytest.approx(EXPECTED[name], rel=1e-12)


@pytest.mark.parametrize("name", LOSSES)
def test_every_character_of_a_text_counts_as_a_sample(name):
    output, labels = torch.from_numpy(OUTPUT).view(3, 3, 4), torch.from_numpy(LABELS).view(3, 3)
    assert LOSSES[name](output, labels).item() == pytest.approx(EXPECTED[name], rel=1e-12)


def test_numbers_as_targets_of_one_class_are_refused():
    with pytest.raises(NetworkError, match=r"one class is always 0; .* numbers use `loss='squared'`"):
        LOSSES["cross-entropy"](torch.zeros(9, 1), torch.rand(9, 1))
    with pytest.raises(NetworkError, match="the network has one output"):
        LOSSES["cross-entropy"](torch.zeros(9, 1, 4, 4), torch.rand(9, 1, 4, 4))


def test_targets_that_are_numbers():
    output, target = torch.from_numpy(OUTPUT[:, :1]), torch.from_numpy(OUTPUT[:, 1])
    expected = ((OUTPUT[:, 0] - OUTPUT[:, 1]) ** 2).mean()
    assert LOSSES["squared"](output, target).item() == pytest.approx(expected, rel=1e-12)
    yes = torch.from_numpy((OUTPUT[:, 1] > 0).astype(np.float32))
    p, t = sigmoid(OUTPUT[:, 0]), yes.numpy()
    expected = -(t * np.log(p) + (1 - t) * np.log(1 - p)).mean()
    assert LOSSES["binary-cross-entropy"](output, yes).item() == pytest.approx(expected, rel=1e-12)


def test_auxiliary_outputs_count_less():
    main, *others = (torch.from_numpy(rng.normal(size=(9, 4))) for _ in range(3))
    target, loss = torch.from_numpy(LABELS), LOSSES["cross-entropy"]
    expected = loss(main, target) + 0.3 * loss(others[0], target) + 0.3 * loss(others[1], target)
    assert total_loss(loss, (main, *others), target, 0.3).item() == pytest.approx(expected.item(), rel=1e-12)
    assert total_loss(loss, (main,), target, 0.3).item() == loss(main, target).item()
    assert total_loss(loss, main, target, 0.3).item() == loss(main, target).item()


def test_googlenet_has_two_auxiliary_heads_in_training_only():
    network = networks.build("googlenet", shape=(3, 64, 64), classes=4)
    x = torch.zeros(2, 3, 64, 64)
    outputs = network.train()(x)
    assert isinstance(outputs, tuple) and [tuple(o.shape) for o in outputs] == [(2, 4)] * 3
    assert auxiliary_weight(network) == 0.3
    assert isinstance(network.eval()(x), torch.Tensor)


def test_a_network_can_say_how_much_its_auxiliary_outputs_count():
    network = nn.Linear(2, 2)
    network.auxiliary_weight = 0.7  # type: ignore[assignment]
    assert auxiliary_weight(network) == 0.7
