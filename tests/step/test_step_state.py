"""What a step may change and what not: frozen parameters, buffers of batch norm, and a trial that is undone."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paceline.step.flat import FlatStep
from paceline.step.make import make_step
from paceline.step.snapshot import StepSnapshot
from paceline.step.tally import Tally
from tests.step.small_parts import parts_for, rows

KINDS = ["plain", "flat", pytest.param("compiled", marks=pytest.mark.slow)]


def normalised() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))


def after_an_epoch(network: nn.Module, kind: str, **settings: object) -> dict[str, Tensor]:
    parts = parts_for(network, rows(43), precision="float64", **settings)
    step, _ = make_step(parts, kind)
    step.begin(0)
    step.advance(parts.updates_per_epoch, Tally(1))
    step.close()
    return {name: value.clone() for name, value in network.state_dict().items()}


@pytest.mark.parametrize("kind", KINDS)
def test_the_buffers_of_batch_norm_follow_the_batches(kind):
    found = after_an_epoch(normalised(), kind)
    reference = normalised().double()
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.1)
    for x, y in parts_for(normalised(), rows(43), precision="float64").feeder.batches(0):
        optimizer.zero_grad()
        F.cross_entropy(reference(x), y).backward()
        optimizer.step()
    assert found["1.num_batches_tracked"] == 6
    for name, value in reference.state_dict().items():
        torch.testing.assert_close(found[name], value, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("kind", KINDS)
def test_frozen_parameters_are_left_alone(kind):
    network = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    network[0].requires_grad_(False)
    before = network[0].weight.detach().double()
    changed = network[2].weight.detach().double()
    found = after_an_epoch(network, kind, l2=0.1, optimizer="momentum")
    assert torch.equal(found["0.weight"], before) and not torch.equal(found["2.weight"], changed)


@pytest.mark.parametrize("kind", KINDS)
def test_tied_weights_are_updated_once_and_stay_tied(kind):
    def tied() -> nn.Sequential:
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3))
        network[2].weight = network[0].weight
        return network

    network = tied()
    found = after_an_epoch(network, kind)
    assert network[0].weight.data_ptr() == network[2].weight.data_ptr()
    reference = tied().double()
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.1)
    for x, y in parts_for(tied(), rows(43), precision="float64").feeder.batches(0):
        optimizer.zero_grad()
        F.cross_entropy(reference(x), y).backward()
        optimizer.step()
    for name, value in reference.state_dict().items():
        torch.testing.assert_close(found[name], value, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adadelta", "adam", "nadam"])
def test_a_snapshot_brings_everything_back(optimizer):
    network = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Dropout(0.5), nn.Linear(5, 3))
    parts = parts_for(network, rows(43), optimizer=optimizer)
    step = FlatStep(parts)
    step.begin(0)
    step.advance(2, Tally(1))

    def everything() -> list[Tensor]:
        state = [tensor for phase in step.phases for tensor in (phase.lr, *phase.state.values())]
        return [t.clone() for t in (*network.state_dict().values(), *state, parts.generator.get_state())]

    before = everything()
    snapshot = StepSnapshot(network, step, parts.generator)
    step.advance(2, Tally(1))
    assert not all(torch.equal(a, b) for a, b in zip(everything(), before, strict=True))
    snapshot.restore()
    assert all(torch.equal(a, b) for a, b in zip(everything(), before, strict=True))
    assert step.phases[0].flat.bound()
    step.close()
