"""All time of an iteration belongs to the module that causes it, forward and backward."""

from __future__ import annotations

import threading
import time
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paceline.measurement.mark_log import OUTSIDE, MarkLog
from paceline.measurement.module_marks import ModuleMarks, unsupported_reason
from tests.measurement.slow_layers import SlowLayer, check_sleeps, log_of, rows, slept_s, spans_of

pytestmark = pytest.mark.serial
X = torch.randn(3, 4)


def train_once(model: nn.Module, x: Tensor = X):
    return lambda: model(x).sum().backward()


def test_this_pytorch_is_supported():
    assert unsupported_reason() is None
    with torch.no_grad():
        assert unsupported_reason() is None


def test_a_sleeping_operation_counts_in_its_own_row_only():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), SlowLayer(0.005, 0.010), nn.Linear(4, 4))
    spans_s = check_sleeps(model, train_once(model)).durations_s({})
    assert spans_s["forward", "2"] >= 0.005 and spans_s["backward", "2"] >= 0.010


def test_the_first_layer_has_a_backward_time():
    model = nn.Sequential(SlowLayer(), nn.Linear(4, 4))
    spans_s = check_sleeps(model, train_once(model)).durations_s({})
    assert spans_s["backward", "0"] >= model[0].slept["backward"] >= 0.010
    linear = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256))
    spans_s = spans_of(linear, train_once(linear, torch.randn(512, 256)))
    assert spans_s["backward", "0"] > 20e-6


def test_a_relu_in_place():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), SlowLayer(), nn.ReLU(inplace=True))
    spans_s = check_sleeps(model, train_once(model)).durations_s({})
    assert {"0", "1", "2", "3"} <= rows(spans_s, "backward") & rows(spans_s, "forward")


class Residual(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        y = self.inner(x)
        y += x
        return y


def test_a_residual_added_in_place():
    model = nn.Sequential(nn.Linear(4, 4), Residual(SlowLayer()), Residual(nn.Linear(4, 4)))
    spans_s = check_sleeps(model, train_once(model)).durations_s({})
    assert {"1", "1.inner", "2", "2.inner"} <= rows(spans_s, "backward")


def test_a_module_called_twice_has_both_calls_in_its_row():
    layer = SlowLayer()
    model = nn.Sequential(layer, nn.ReLU(), layer)
    spans_s = check_sleeps(model, train_once(model)).durations_s({})
    assert layer.slept["backward"] >= 0.020
    assert rows(spans_s, "forward") == {"Sequential", "0", "1", OUTSIDE}


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode, self.slow, self.decode = nn.Embedding(6, 4), SlowLayer(), nn.Linear(4, 6, bias=False)
        self.decode.weight = self.encode.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.decode(self.slow(self.encode(x)))


def test_tied_weights_leave_each_layer_its_own_operations():
    model = Tied()
    spans_s = check_sleeps(model, train_once(model, torch.tensor([1, 2, 3]))).durations_s({})
    assert {"encode", "slow", "decode"} <= rows(spans_s, "backward")


class Block(nn.Module):
    """Does work of its own between its submodules."""

    def __init__(self, *parts: nn.Module) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x) * 2
        return x


def test_time_belongs_to_the_innermost_module():
    model = Block(Block(SlowLayer(), Block(SlowLayer())), nn.Linear(4, 4))
    log = check_sleeps(model, train_once(model))
    forward = [row for _, (part, row), *_ in log.marks if part == "forward"]
    inner, leaf, leaf_in_inner = "parts.0.parts.1", "parts.0.parts.0", "parts.0.parts.1.parts.0"
    top, outer = "Block", "parts.0"
    expected = [OUTSIDE, top, outer, leaf, outer, inner, leaf_in_inner, inner, outer, top, "parts.1", top, OUTSIDE]
    assert forward == expected
    backward = [row for kind, (part, row), *_ in log.marks if part == "backward" and kind == "node"]
    assert {top, outer, inner, leaf, leaf_in_inner, "parts.1", OUTSIDE} == set(backward)
    assert backward.index(top) < backward.index(outer) < backward.index(inner) < backward.index(leaf)


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = SlowLayer(), nn.Linear(4, 4)

    def forward(self, pair: tuple[Tensor, dict[str, Tensor]], *, scale: Tensor) -> dict[str, object]:
        left, more = pair
        return {"sum": (self.left(left) * scale, self.right(more["right"])), "scale": scale}


def test_dicts_tuples_and_keywords_as_inputs_and_outputs():
    model = Pair()

    def iteration():
        y = model((X, {"right": X}), scale=torch.tensor(2.0))
        (y["sum"][0] + y["sum"][1]).sum().backward()

    spans_s = check_sleeps(model, iteration).durations_s({})
    assert {"Pair", "left", "right"} <= rows(spans_s, "forward") & rows(spans_s, "backward")


def test_frozen_layers_have_no_backward():
    model = nn.Sequential(SlowLayer(), nn.Linear(4, 4), nn.Linear(4, 4), SlowLayer())
    model[:2].requires_grad_(False)
    spans_s = check_sleeps(model, train_once(model)).durations_s({})
    assert not {"0", "1"} & rows(spans_s, "backward") and {"2", "3"} <= rows(spans_s, "backward")


@pytest.mark.parametrize("shared", [True, False])
def test_two_losses(shared):
    model = nn.Sequential(nn.Linear(4, 4), SlowLayer())

    def iteration():
        y = model(X)
        y.sum().backward(retain_graph=shared)
        (y if shared else model(X)).mean().backward()

    log = check_sleeps(model, iteration)
    assert model[1].slept["backward"] >= 0.020
    assert [mark[0] for mark in log.marks].count("walk") == 4


def test_gradients_accumulated_over_several_passes():
    model = nn.Sequential(nn.Linear(4, 4), SlowLayer())

    def iteration():
        for part in X.split(1):
            (F.mse_loss(model(part), part) / 3).backward()

    log = check_sleeps(model, iteration)
    assert model[1].slept["backward"] >= 0.030
    after_model = [b[1] for a, b in pairwise(log.marks) if a[1] == ("forward", "Sequential")]
    assert after_model.count(("forward", OUTSIDE)) == 3  # the loss, each time


def test_an_lstm():
    model = nn.ModuleDict({"slow": SlowLayer(), "lstm": nn.LSTM(4, 5, num_layers=2, batch_first=True)})

    def iteration():
        y, (h, c) = model["lstm"](model["slow"](torch.randn(2, 7, 4)))
        (y.sum() + h.sum() + c.sum()).backward()

    spans_s = check_sleeps(model, iteration).durations_s({})
    assert {"slow", "lstm"} <= rows(spans_s, "forward") & rows(spans_s, "backward")


def test_time_outside_any_module_has_its_own_row():
    model, outside = nn.Linear(4, 4), SlowLayer(0.013, 0.010)
    spans_s = spans_of(model, lambda: outside(model(X)).sum().backward())
    assert spans_s["forward", OUTSIDE] >= outside.slept["forward"] >= 0.013
    assert spans_s["backward", OUTSIDE] >= outside.slept["backward"] >= 0.010
    assert ("forward", "Linear") in spans_s and ("backward", "Linear") in spans_s


@pytest.mark.parametrize("named", [True, False])
def test_grad_instead_of_backward(named):
    model = nn.Sequential(nn.Linear(4, 4), SlowLayer())

    def iteration():
        loss, inputs = model(X).sum(), list(model.parameters())
        torch.autograd.grad(outputs=loss, inputs=inputs) if named else torch.autograd.grad(loss, inputs)

    spans_s = check_sleeps(model, iteration).durations_s({})
    assert "0" in rows(spans_s, "backward")


class Force(nn.Module):
    """Takes a gradient inside its forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.energy = SlowLayer()
        self.slept = 0.0

    def forward(self, x: Tensor) -> Tensor:
        x = x.requires_grad_()
        (force,) = torch.autograd.grad((self.energy(x) * 2).sum(), x, create_graph=True)
        self.slept += slept_s(0.005)
        return force


def test_a_gradient_taken_inside_a_forward_pass():
    model = Force()
    spans_s = spans_of(model, lambda: model(X.clone()).sum())
    assert spans_s["backward", "energy"] >= model.energy.slept["backward"] >= 0.010
    assert ("backward", "Force") in spans_s  # the operation of a call that is not over yet
    assert spans_s["forward", "Force"] >= model.slept >= 0.005


def test_an_optimizer_step_with_a_closure():
    model = nn.Sequential(nn.Linear(4, 4), SlowLayer())
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=1)
    log = MarkLog()
    slept = []

    def closure():
        optimizer.zero_grad()
        loss = model(X).square().sum()
        loss.backward()
        slept.append(slept_s(0.005))
        return loss

    with ModuleMarks(model, lambda: log).installed():
        log.mark("edge", ("update", ""))
        optimizer.step(closure)
        log.mark("edge", ("loop", ""))
    spans_s = log.durations_s({})
    assert spans_s["update", ""] >= sum(slept) > 0.0
    assert ("loop", "") not in spans_s


def test_other_threads_are_not_marked():
    """Forward and backward passes of another thread must not split this one's spans."""
    model, other = nn.Sequential(SlowLayer(), nn.Linear(4, 4)), nn.Linear(4, 4)
    failed = []

    def elsewhere():
        try:
            for _ in range(20):
                other(model[1](X)).sum().backward()
                time.sleep(0.001)
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=elsewhere)

    def iteration():
        thread.start()
        model(X).sum().backward()

    log = log_of(model, iteration)
    thread.join()
    assert not failed
    assert [mark[0] for mark in log.marks].count("module") == 6
    assert [mark[0] for mark in log.marks].count("walk") == 2


def test_a_module_added_after_the_marks_were_made():
    model = nn.Sequential(nn.Linear(4, 4))
    log = MarkLog()
    marks = ModuleMarks(model, lambda: log)
    model.append(nn.Tanh())
    with marks.installed():
        model(X).sum().backward()
        log.mark("edge", ("loop", ""))
    spans_s = log.durations_s({})
    assert "1" in rows(spans_s, "forward") & rows(spans_s, "backward")
