"""Every rule, flat or in one kernel, follows `torch.optim` update by update."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from paceline.step.optimizers import Rule, fused_update, has_fused_kernel, initial_state, torch_optimizer, update
from paceline.workload import OPTIMIZERS


def gradients(count: int = 12) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(20, generator=generator, dtype=torch.float64) for _ in range(count)]


def start() -> torch.Tensor:
    return torch.linspace(-1, 1, 20, dtype=torch.float64)


def by_pytorch(rule: Rule, rates: list[float]) -> torch.Tensor:
    parameter = nn.Parameter(start())
    optimizer = torch_optimizer(rule, [parameter])
    for gradient, rate in zip(gradients(), rates, strict=True):
        parameter.grad = gradient.clone()
        if rule.l1:
            parameter.grad.add_(parameter.detach().sign(), alpha=rule.l1)
        optimizer.param_groups[0]["lr"] = rate
        optimizer.step()
    return parameter.detach()


RATES = [0.01 / (1 + n) for n in range(12)]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize(("l1", "l2"), [(0.0, 0.0), (0.0, 0.1), (0.05, 0.1)])
def test_flat_updates_follow_pytorch_while_the_rate_changes(optimizer, l1, l2):
    rule = Rule(optimizer, RATES[0], l1=l1, l2=l2)
    w, lr = start(), torch.zeros((), dtype=torch.float64)
    state = initial_state(rule, w)
    for gradient, rate in zip(gradients(), RATES, strict=True):
        update(rule, w, gradient.clone(), state, lr.fill_(rate))
    # PyTorch keeps one factor of nadam in float32, whatever the parameters are.
    precision = 1e-6 if optimizer == "nadam" else 1e-10
    torch.testing.assert_close(w, by_pytorch(rule, RATES), rtol=precision, atol=precision / 100)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "nesterov"])
def test_the_one_kernel_follows_pytorch(optimizer):
    rule = Rule(optimizer, RATES[0], l2=0.1)
    w, lr = start(), torch.zeros((), dtype=torch.float64)
    assert has_fused_kernel(rule, w)
    velocity = [torch.zeros_like(w)]
    for gradient, rate in zip(gradients(), RATES, strict=True):
        fused_update(rule, [w], [gradient.clone()], velocity, lr.fill_(rate))
    torch.testing.assert_close(w, by_pytorch(rule, RATES), rtol=1e-10, atol=1e-12)


CONSTANTS = [
    Rule("momentum", 0.01, momentum=0.5),
    Rule("momentum", 0.01, momentum=0.0),
    Rule("nesterov", 0.01, momentum=0.5),
    Rule("adagrad", 0.01, eps=0.1),
    Rule("adadelta", 0.01, eps=0.1),
    Rule("rmsprop", 0.01, eps=0.1),
    Rule("adam", 0.01, betas=(0.5, 0.9), eps=0.1),
    Rule("adamw", 0.01, betas=(0.0, 0.9), eps=0.1, weight_decay=0.3),
    Rule("nadam", 0.01, betas=(0.5, 0.9), eps=0.1),
]


@pytest.mark.parametrize("rule", CONSTANTS, ids=str)
def test_constants_that_are_given_change_the_update_as_in_pytorch(rule):
    expected = by_pytorch(rule, RATES)
    assert not torch.allclose(expected, by_pytorch(Rule(rule.optimizer, 0.01), RATES))
    w, lr = start(), torch.zeros((), dtype=torch.float64)
    state = initial_state(rule, w)
    in_one, velocity = start(), [torch.zeros_like(w)]
    for gradient, rate in zip(gradients(), RATES, strict=True):
        update(rule, w, gradient.clone(), state, lr.fill_(rate))
        if has_fused_kernel(rule, w):
            fused_update(rule, [in_one], [gradient.clone()], velocity, lr)
    precision = 1e-6 if rule.optimizer == "nadam" else 1e-10
    torch.testing.assert_close(w, expected, rtol=precision, atol=precision / 100)
    if has_fused_kernel(rule, w):
        torch.testing.assert_close(in_one, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_constants_that_are_not_given_are_pytorch_s(optimizer):
    def defaults(made: torch.optim.Optimizer) -> dict[str, object]:
        chosen = {"lr", "momentum", "nesterov"}
        return {name: value for name, value in made.defaults.items() if name not in chosen}

    names = {
        "adagrad": "Adagrad", "adadelta": "Adadelta", "rmsprop": "RMSprop", "adam": "Adam", "adamw": "AdamW",
        "nadam": "NAdam",
    }  # fmt: skip
    theirs = getattr(torch.optim, names.get(optimizer, "SGD"))([nn.Parameter(start())], lr=0.1)
    assert defaults(torch_optimizer(Rule(optimizer, 0.1), [nn.Parameter(start())])) == defaults(theirs)


def test_rules_without_a_kernel_of_their_own():
    w = start()
    assert not has_fused_kernel(Rule("adam", 0.1), w)
    assert not has_fused_kernel(Rule("sgd", 0.1, l1=0.1), w), "PyTorch's knows no l1"
