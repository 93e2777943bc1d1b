"""Clipping by the global norm gives what `torch.nn.utils.clip_grad_norm_` gives."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from paceline.step.clipping import BLOCK, clip_norm_
from paceline.step.make import make_step
from paceline.step.optimizers import Rule
from paceline.step.phase import Batch, Outcome
from paceline.step.tally import Tally
from tests.step.small_parts import parts_for, rows

SHAPES = {"one": [(20,)], "several": [(4, 5), (3,), ()], "many numbers": [(3 * BLOCK + 7,), (2,)]}


@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("max_norm", [0.1, 1e6])
def test_gradients_are_scaled_as_pytorch_scales_them(shapes, max_norm):
    generator = torch.Generator().manual_seed(0)
    gradients = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    parameters = [nn.Parameter(torch.zeros_like(g)) for g in gradients]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient.clone()
    nn.utils.clip_grad_norm_(parameters, max_norm)
    clip_norm_(gradients, max_norm)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        torch.testing.assert_close(gradient, parameter.grad, rtol=1e-12, atol=0.0)


def test_a_gradient_of_zero_stays_zero_and_one_that_is_not_finite_is_not_hidden():
    zero, broken = torch.zeros(3), torch.tensor([1.0, float("nan")])
    clip_norm_([zero], 1.0)
    clip_norm_([broken], 1.0)
    assert torch.equal(zero, torch.zeros(3)) and broken.isnan().all()


class Sum(nn.Module):
    """Its two parameters get one and the same tensor as their gradient, and it is an expanded one."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(3))


class SumPhase:
    name = "sum"

    def __init__(self, network: Sum) -> None:
        self.network, self.rule = network, Rule("sgd", 1.0, clip_norm=0.6)
        self.parameters = [network.a, network.b]

    def gradient(self, batch: Batch, generator: torch.Generator) -> Outcome:
        loss = (self.network.a + self.network.b).sum()
        return Outcome(loss.detach(), torch.autograd.grad(loss, self.parameters))


@pytest.mark.parametrize("kind", ["plain", "flat"])
def test_gradients_that_share_memory_are_clipped_once(kind):
    network = Sum()
    step, _ = make_step(parts_for(network, rows(), [SumPhase(network)], phases="own:phases"), kind)
    step.begin(0)
    step.advance(1, Tally(1))
    for parameter in network.parameters():
        torch.testing.assert_close(parameter.detach(), torch.full((3,), -0.6 / 6**0.5))
