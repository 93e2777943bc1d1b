"""Recomputed activations have their own rows; their gradients count for their layers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from paceline.measurement.layer_clock import LayerClock
from paceline.measurement.mark_log import OUTSIDE, RECOMPUTE
from tests.measurement.slow_layers import SlowLayer, check_sleeps, iterations, rows, slept_s, spans_of

FORWARD_S, BACKWARD_S = 0.005, 0.010


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 4)
        # The slow layer is not the last: what comes after it needs its output again.
        self.block = nn.Sequential(nn.Linear(4, 4), SlowLayer(FORWARD_S, BACKWARD_S), nn.Linear(4, 4), nn.Tanh())
        self.reentrant = reentrant

    def forward(self, x: Tensor) -> Tensor:
        return self.last(checkpoint(self.block, self.first(x), use_reentrant=self.reentrant))


@pytest.fixture(params=[True, False], ids=["reentrant", "not reentrant"])
def model(request) -> Checkpointed:
    return Checkpointed(request.param)


def test_recomputation_has_its_own_rows(model):
    spans_s = spans_of(model, lambda: model(torch.randn(3, 4)).sum().backward())
    again = spans_s["backward", f"block.1 {RECOMPUTE}"]
    assert spans_s["forward", "block.1"] >= FORWARD_S and again >= FORWARD_S
    assert spans_s["forward", "block.1"] + again >= model.block[1].slept["forward"]
    assert {f"block {RECOMPUTE}", f"block.0 {RECOMPUTE}", f"block.2 {RECOMPUTE}"} <= rows(spans_s, "backward")
    assert not [row for row in rows(spans_s, "forward") if RECOMPUTE in row]
    assert RECOMPUTE not in rows(spans_s, "backward")


def test_the_gradients_of_what_was_recomputed_belong_to_their_layers(model):
    spans_s = spans_of(model, lambda: model(torch.randn(3, 4)).sum().backward())
    assert spans_s["backward", "block.1"] >= model.block[1].slept["backward"] >= BACKWARD_S
    assert {"first", "last", "block.0", "block.1", "block.2", "block.3"} <= rows(spans_s, "backward")


class SleepAfterUnpacking(torch.autograd.Function):
    """Its saved tensors are recomputed before its backward starts."""

    @staticmethod
    def forward(ctx, x, layer):
        ctx.layer = layer
        ctx.save_for_backward(x)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        ctx.layer.slept["backward"] += slept_s(BACKWARD_S)
        return gradient * x, None


class Unpacking(SlowLayer):
    def forward(self, x: Tensor) -> Tensor:
        return SleepAfterUnpacking.apply(x * self.weight, self)


@pytest.mark.serial
def test_after_recomputation_time_belongs_to_the_node_again():
    """Recomputation begins in the middle of a node; the node's own work still follows."""
    model = nn.Sequential(nn.Linear(4, 4), Unpacking())

    def iteration():
        checkpoint(model, torch.randn(3, 4), use_reentrant=False).sum().backward()

    spans_s = check_sleeps(model, iteration).durations_s({})
    assert {"1", f"1 {RECOMPUTE}"} <= rows(spans_s, "backward")


def test_a_clock_counts_a_recomputed_layer_once(model):
    with LayerClock(model, every=2, warm_up=1) as clock:
        for x in iterations(clock, 6):
            model(x).sum().backward()
    layers = {layer.name: layer for layer in clock.measurement().layers}
    assert layers["block.1"].calls == layers["first"].calls == 1
    assert layers["block.0"].flops == layers["first"].flops
    assert f"block.1 {RECOMPUTE}" in layers
    assert layers[f"block.1 {RECOMPUTE}"].forward_s.median_s == 0.0
    assert OUTSIDE in layers
