"""Initial weights: each network's own, and the ones that can be asked for."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from paceline.networks import build


def made(name: str, shape: tuple[int, ...], init: str = "default", kind: str = "image", **options: object):
    torch.manual_seed(0)
    return build(name, shape=shape, classes=10, kind=kind, init=init, **options)


@pytest.mark.parametrize(("init", "std"), [("small", 0.1), ("small:0.02", 0.02)])
def test_small_weights_are_normal_and_biases_zero(init, std):
    for network in (
        made("dnn", (1, 28, 28), init),
        made("lenet5", (1, 28, 28), init),
        made("lstm", (1, 28, 28), init),
    ):
        for name, parameter in network.named_parameters():
            if "bias" in name:
                assert not parameter.any()
            elif parameter.numel() > 500:
                assert parameter.std().item() == pytest.approx(std, rel=0.1)
                assert abs(parameter.mean().item()) < std / 5


def test_xavier_bounds_follow_fan_in_and_fan_out():
    network = made("mlp", (1, 28, 28), "xavier")
    bound = math.sqrt(6 / (784 + 50))
    assert network.fc1.weight.abs().max().item() == pytest.approx(bound, rel=0.01)
    assert not network.fc1.bias.any()


def test_kaiming_variance_follows_fan_in():
    network = made("mlp", (1, 28, 28), "kaiming")
    assert network.fc1.weight.std().item() == pytest.approx(math.sqrt(2 / 784), rel=0.05)


def test_the_gates_of_an_lstm_are_separate_matrices():
    network = made("lstm", (1, 28, 28), "xavier")
    bound = math.sqrt(6 / (28 + 128))
    for gate in network.lstm.weight_ih_l0.chunk(4):
        assert gate.abs().max().item() == pytest.approx(bound, rel=0.02)


def test_norms_and_embeddings_keep_their_own():
    network = made("resnet20", (3, 8, 8), "small")
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            assert bool((layer.weight == 1).all()) and not layer.bias.any()
    own = made("transformer", (8,), kind="text")
    small = made("transformer", (8,), "small", kind="text")
    assert torch.equal(own.tokens.weight, small.tokens.weight)
    assert torch.equal(own.positions.weight, small.positions.weight)
    assert not torch.equal(own.output.weight, small.output.weight)


@pytest.mark.parametrize("init", ["default", "small", "small:0.3", "xavier", "kaiming"])
def test_a_seed_fixes_the_weights(init):
    one, other = made("lenet5", (1, 28, 28), init), made("lenet5", (1, 28, 28), init)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_vgg_has_torchvisions_initial_weights():
    network = made("vgg11", (3, 32, 32))
    assert network.conv8.weight.std().item() == pytest.approx(math.sqrt(2 / (512 * 9)), rel=0.02)
    assert network.output.weight.std().item() == pytest.approx(0.01, rel=0.05)
    for layer in (network.conv1, network.conv8, network.fc1, network.output):
        assert not layer.bias.any()


def test_resnets_have_torchvisions_initial_weights():
    network = made("resnet18", (3, 32, 32))
    assert network.conv1.weight.std().item() == pytest.approx(math.sqrt(2 / (64 * 49)), rel=0.03)
    down = network.layer4[0].downsample[0]
    assert down.weight.std().item() == pytest.approx(math.sqrt(2 / 512), rel=0.02)


def test_googlenet_has_torchvisions_initial_weights():
    network = made("googlenet", (3, 32, 32))
    for layer in (network.conv3.conv, network.inception5b.branch2[1].conv, network.aux1.fc1, network.output):
        assert layer.weight.std().item() == pytest.approx(0.01, rel=0.05)


def test_alexnet_and_lenet5_have_pytorchs_initial_weights():
    network = made("lenet5", (1, 28, 28))
    bound = 1 / math.sqrt(400)
    assert network.fc1.weight.abs().max().item() == pytest.approx(bound, rel=0.01)


def test_residual_branches_of_the_transformer_start_smaller():
    network = made("transformer", (8,), kind="text")
    assert network.block1.fc1.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert network.block1.fc2.weight.std().item() == pytest.approx(0.02 / math.sqrt(8), rel=0.05)
