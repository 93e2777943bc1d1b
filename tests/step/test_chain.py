"""The written-out gradient of a chain is autograd's, and what is not a chain is left to autograd."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from paceline.step.chain import Chain
from paceline.step.flat_parameters import FlatParameters
from paceline.step.phase import LossPhase
from paceline.workload import Workload
from tests.step.small_parts import dataset_of, rows

BATCH, WIDTH, CLASSES = 8, 6, 3
L = nn.Linear


def chain_of(network: nn.Module, dataset=None, **settings) -> tuple[Chain | None, LossPhase, FlatParameters]:
    phase = LossPhase(network, Workload(**settings))
    flat = FlatParameters(phase.parameters)
    return (
        Chain.of(phase, flat, BATCH, dataset if dataset is not None else rows(width=WIDTH, classes=CLASSES)),
        phase,
        flat,
    )


def is_chain(network: nn.Module, dataset=None, **settings) -> bool:
    return chain_of(network, dataset, **settings)[0] is not None


def layers(*between: nn.Module) -> nn.Sequential:
    return nn.Sequential(L(WIDTH, 7), *between, L(7, 5), nn.Tanh(), L(5, CLASSES))


CHAINS = {
    "tanh": lambda: layers(nn.Tanh()),
    "sigmoid": lambda: layers(nn.Sigmoid()),
    "relu": lambda: layers(nn.ReLU()),
    "relu in place": lambda: layers(nn.ReLU(inplace=True)),
    "no activation": lambda: layers(),
    "dropout": lambda: layers(nn.Dropout(0.4)),
    "dropout after an activation": lambda: layers(nn.Sigmoid(), nn.Dropout(0.4)),
    "dropout before an activation": lambda: layers(nn.Dropout(0.4), nn.ReLU()),
    "dropout between activations": lambda: layers(nn.Sigmoid(), nn.Dropout(0.4), nn.Tanh()),
    "two dropouts": lambda: layers(nn.Dropout(0.2), nn.Dropout(0.4)),
    "a dropout that drops nothing": lambda: layers(nn.Dropout(0.0), nn.Tanh(), nn.Dropout(0.4)),
    "one layer": lambda: nn.Sequential(L(WIDTH, CLASSES)),
}


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("flatten", [False, True])
def test_the_gradient_is_that_of_autograd(name, flatten):
    torch.manual_seed(1)
    network = CHAINS[name]().double()
    x, y = torch.randn(BATCH, WIDTH, dtype=torch.float64), torch.randint(0, CLASSES, (BATCH,))
    dataset = rows(width=WIDTH, classes=CLASSES)
    if flatten:
        network, x = nn.Sequential(nn.Flatten(), *network), x.view(BATCH, 1, 2, 3)
        dataset = dataset_of(torch.zeros(9, 1, 2, 3), torch.arange(9) % CLASSES)
    chain, phase, flat = chain_of(network, dataset, precision="float64")
    assert chain is not None
    for seed in range(3):  # the memory of a step is used again by the next
        torch.manual_seed(seed)
        expected = phase.gradient((x, y), torch.default_generator)
        torch.manual_seed(seed)
        found = chain.gradient((x, y))
        for a, b in zip(flat.split(flat.gradient), expected.gradients, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-14)
        loss = -found.output.gather(1, y.unsqueeze(1)).mean()
        assert loss.item() == pytest.approx(expected.loss.item(), rel=1e-12)
        torch.testing.assert_close(found.output.exp(), expected.output.softmax(1), rtol=1e-12, atol=1e-14)


def shared_layer() -> nn.Sequential:
    layer = L(WIDTH, WIDTH)
    return nn.Sequential(layer, nn.Tanh(), layer, nn.Tanh(), L(WIDTH, CLASSES))


def tied_weights() -> nn.Sequential:
    network = nn.Sequential(L(WIDTH, WIDTH), nn.Tanh(), L(WIDTH, WIDTH), nn.Tanh(), L(WIDTH, CLASSES))
    network[2].weight = network[0].weight
    return network


def frozen() -> nn.Sequential:
    network = layers(nn.Tanh())
    network[0].requires_grad_(False)
    return network


def hooked(register: str) -> nn.Sequential:
    network = layers(nn.Tanh())
    getattr(network[1], register)(lambda *_: None)
    return network


def parameter_hook() -> nn.Sequential:
    network = layers(nn.Tanh())
    network[0].weight.register_hook(lambda gradient: gradient * 2)
    return network


class Scaled(L):
    def forward(self, x):
        return 2 * super().forward(x)


OTHERS = {
    "no bias": lambda: nn.Sequential(L(WIDTH, 5, bias=False), nn.Tanh(), L(5, CLASSES)),
    "a shared layer": shared_layer,
    "tied weights": tied_weights,
    "a frozen layer": frozen,
    "a parametrization": lambda: nn.Sequential(parametrizations.weight_norm(L(WIDTH, 5)), nn.Tanh(), L(5, CLASSES)),
    "a layer of another kind": lambda: layers(nn.GELU()),
    "a subclass": lambda: nn.Sequential(Scaled(WIDTH, CLASSES)),
    "batch norm": lambda: layers(nn.BatchNorm1d(7)),
    "an activation first": lambda: nn.Sequential(nn.Tanh(), L(WIDTH, CLASSES)),
    "an activation last": lambda: nn.Sequential(L(WIDTH, CLASSES), nn.Tanh()),
    "two activations in a row": lambda: layers(nn.Sigmoid(), nn.Tanh()),
    "a dropout that drops all": lambda: layers(nn.Dropout(1.0)),
    "a nested sequence": lambda: nn.Sequential(nn.Sequential(L(WIDTH, 5)), L(5, CLASSES)),
    "another flattening": lambda: nn.Sequential(nn.Flatten(0), L(WIDTH, CLASSES)),
    "no sequence": lambda: L(WIDTH, CLASSES),
    "a hook on a parameter": parameter_hook,
    **{
        register: lambda register=register: hooked(register)
        for register in (
            "register_forward_hook",
            "register_forward_pre_hook",
            "register_full_backward_hook",
            "register_full_backward_pre_hook",
        )
    },
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_not_a_chain(name):
    assert not is_chain(OTHERS[name]())


@pytest.mark.parametrize("settings", [{"precision": "bfloat16"}, {"loss": "hinge"}, {"loss": "squared"}])
def test_other_losses_and_mixed_precision_are_left_to_autograd(settings):
    assert not is_chain(layers(nn.Tanh()), **settings)


def test_sequences_and_soft_labels_are_left_to_autograd():
    assert is_chain(layers(nn.Tanh()))
    assert not is_chain(layers(nn.Tanh()), dataset_of(torch.zeros(9, 4, WIDTH), torch.zeros(9, 4, dtype=torch.int64)))
    assert not is_chain(layers(nn.Tanh()), dataset_of(torch.zeros(9, WIDTH), torch.rand(9, CLASSES)))
