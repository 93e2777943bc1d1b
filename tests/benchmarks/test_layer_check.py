"""The independent attribution that layers are checked with is itself right, on what can be told without a GPU."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from benchmarks.layer_check import OUTSIDE, attribute, compare_layers, kernel_s, named_calls
from paceline.measurement.measurement import LayerTime, Measurement, Spread


class Sleep(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        time.sleep(0.02)
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        time.sleep(0.04)
        return g.clone()


class Slow(nn.Module):
    def forward(self, x):
        return Sleep.apply(x)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.relu, self.second = nn.Linear(16, 16), nn.ReLU(inplace=True), nn.Linear(16, 16)

    def forward(self, x):
        y = self.second(self.relu(self.first(x)))
        y += x
        return y


@pytest.fixture(scope="module")
def events():
    network = nn.Sequential()
    network.add_module("conv", nn.Conv2d(1, 4, 3))
    network.add_module("flatten", nn.Flatten())
    network.add_module("enter", nn.Linear(4 * 36, 16))
    network.add_module("block", Residual())
    network.add_module("slow", Slow())
    network.add_module("output", nn.Linear(16, 10))
    x, y = torch.randn(8, 1, 8, 8), torch.randint(10, (8,))
    with profile(activities=[ProfilerActivity.CPU]) as profiler, named_calls(network):
        for _ in range(2):
            loss = nn.functional.cross_entropy(network(x), y)
            torch.autograd.grad(loss, list(network.parameters()))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in network.modules())
    return profiler.events()


def counted(events, *names):
    """How often operations of these names belong to whom."""
    return attribute(events, lambda event: float(event.name in names))


def test_forward_operations_belong_to_the_innermost_module(events):
    assert counted(events, "aten::conv2d") == {("forward", "conv"): 2}
    assert counted(events, "aten::linear") == {
        ("forward", name): 2 for name in ("enter", "block.first", "block.second", "output")
    }
    assert counted(events, "aten::relu_") == {("forward", "block.relu"): 2}
    assert counted(events, "aten::add_")["forward", "block"] == 2
    assert counted(events, "aten::cross_entropy_loss") == {("forward", OUTSIDE): 2}


def test_backward_operations_belong_to_the_module_whose_forward_made_them(events):
    assert counted(events, "aten::convolution_backward") == {("backward", "conv"): 2}
    assert counted(events, "AddmmBackward0") == {
        ("backward", name): 2 for name in ("enter", "block.first", "block.second", "output")
    }
    assert counted(events, "ReluBackward0") == {("backward", "block.relu"): 2}
    assert counted(events, "LogSoftmaxBackward0", "NllLossBackward0") == {("backward", OUTSIDE): 4}


@pytest.mark.serial
def test_time_is_where_it_was_spent(events):
    seconds = attribute(events, lambda event: 1e-6 * event.self_cpu_time_total)
    assert seconds["forward", "slow"] == pytest.approx(2 * 0.02, rel=0.3)
    assert seconds["backward", "slow"] == pytest.approx(2 * 0.04, rel=0.3)
    whole = sum(1e-6 * event.self_cpu_time_total for event in events)
    assert sum(seconds.values()) == pytest.approx(whole)


def test_the_range_of_an_annotation_is_no_kernel():
    kernels = [SimpleNamespace(duration=3.0), SimpleNamespace(duration=2.0)]
    assert kernel_s(SimpleNamespace(name="aten::addmm", is_user_annotation=False, kernels=kernels)) == pytest.approx(
        5e-6
    )
    assert kernel_s(SimpleNamespace(name="layer conv1", is_user_annotation=True, kernels=kernels)) == 0.0
    assert kernel_s(SimpleNamespace(name="Optimizer.step#SGD", is_user_annotation=True, kernels=kernels)) == 0.0


def a_layer(name: str, forward_s: float, backward_s: float) -> LayerTime:
    def spread(value: float) -> Spread:
        return Spread(value, value, value, value)

    return LayerTime(name, "Linear", 1, spread(forward_s), spread(backward_s), spread(0.0), True, 0, 0, 0, 0, 0, 0, 0)


def test_layers_are_judged_by_their_share():
    layers = (
        a_layer("large", 200e-6, 304e-6), a_layer("wrong", 200e-6, 200e-6), a_layer("small", 15e-6, 15e-6),
        a_layer("tiny", 1e-6, 1e-6), a_layer(OUTSIDE, 100e-6, 100e-6),
    )  # fmt: skip
    nothing = Spread(1e-3, 1e-3, 1e-3, 1e-3)
    m = Measurement("net", 1, "cuda:0", "", "flat", 1, 1, nothing, {}, {}, 1.0, 0.0, 0.0, 0.0, layers, 1.0, 1.0, 1)
    independent = {
        ("forward", "large"): 200e-6, ("backward", "large"): 290e-6, ("forward", "wrong"): 300e-6,
        ("backward", "wrong"): 80e-6, ("forward", "small"): 38e-6,
    }  # fmt: skip
    rows = {row["layer"]: row for row in compare_layers(m, independent)}
    assert {name: row["agrees"] for name, row in rows.items()} == {"large": True, "wrong": False, "small": True}
    assert rows["small"]["allowed_s"] == 10e-6 and rows["large"]["allowed_s"] == pytest.approx(0.05 * 490e-6)
