"""Parameters in one buffer stay the network's parameters, whatever PyTorch's own methods do to them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from paceline.step.flat_parameters import FlatParameters


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))


def test_values_are_kept_and_shared_both_ways():
    net = network()
    before = [p.detach().clone() for p in net.parameters()]
    flat = FlatParameters(list(net.parameters()))
    assert flat.bound() and flat.buffer.numel() == sum(p.numel() for p in before)
    assert all(torch.equal(p, b) for p, b in zip(net.parameters(), before, strict=True))
    flat.buffer.zero_()
    assert all((p == 0).all() for p in net.parameters())
    with torch.no_grad():
        net[0].weight.fill_(3.0)
    assert (flat.buffer[:12] == 3.0).all() and (flat.buffer[12:] == 0).all()


@pytest.mark.parametrize("set_to_none", [True, False])
def test_zero_grad_and_a_backward_leave_them_bound(set_to_none):
    net = network()
    flat = FlatParameters(list(net.parameters()))
    net(torch.ones(2, 4)).sum().backward()
    net.zero_grad(set_to_none=set_to_none)
    assert flat.bound()


def test_after_moving_away_and_back_they_can_be_bound_again():
    net = network()
    flat = FlatParameters(list(net.parameters()))
    net.to(torch.float64).to(torch.float32)
    with torch.no_grad():
        net[0].weight.add_(1.0)
    values = [p.detach().clone() for p in net.parameters()]
    assert not flat.bound()
    flat.bind()
    assert flat.bound() and all(torch.equal(p, v) for p, v in zip(net.parameters(), values, strict=True))
    assert torch.equal(flat.buffer, torch.cat([v.flatten() for v in values]))


def test_loading_a_state_dict_writes_through_and_by_assignment_can_be_bound():
    net, other = network(), network()
    with torch.no_grad():
        other[2].bias.fill_(7.0)
    flat = FlatParameters(list(net.parameters()))
    net.load_state_dict(other.state_dict())
    assert flat.bound() and (flat.buffer[-2:] == 7.0).all()
    net.load_state_dict({k: v + 1 for k, v in other.state_dict().items()}, assign=True)
    changed = FlatParameters(list(net.parameters()))
    assert changed.bound() and (changed.buffer[-2:] == 8.0).all()


def test_tied_weights_appear_once():
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    net[1].weight = net[0].weight
    flat = FlatParameters(list(net.parameters()))
    assert flat.buffer.numel() == 9 + 3 + 3
    assert net[0].weight.data_ptr() == net[1].weight.data_ptr() == flat.buffer.data_ptr()


def test_gradients_are_joined_and_missing_ones_are_zero():
    net = network()
    flat = FlatParameters(list(net.parameters()))
    gradients = [torch.full_like(p, i + 1.0) for i, p in enumerate(net.parameters())]
    joined = flat.gather([gradients[0], None, *gradients[2:]])
    assert joined.tolist() == [1.0] * 12 + [0.0] * 3 + [3.0] * 6 + [4.0] * 2


def test_why_parameters_cannot_share_a_buffer():
    assert FlatParameters.possible(list(network().parameters())) is None
    assert FlatParameters.possible([]) == "there are no parameters to train"
    mixed = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double())
    assert FlatParameters.possible(list(mixed.parameters())) == "the parameters differ in type or device"
    sparse = nn.Parameter(torch.eye(2).to_sparse())
    assert FlatParameters.possible([sparse]) == "a parameter is sparse"
