"""Measuring on a GPU: by kernels, whatever the step. Nothing here asserts how fast anything is."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from paceline.measurement.layer_clock import LayerClock
from paceline.measurement.mark_log import RECOMPUTE
from paceline.measurement.measuring import measure
from paceline.step.make import make_step
from paceline.workload import resolve

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")]


@pytest.mark.parametrize("step", ["plain", "flat", "graph"])
@pytest.mark.parametrize("network", ["mlp", "lenet5", "lstm"])
def test_every_layer_has_its_kernels(network, step):
    # Epochs of a hundred batches: between two short ones few blocks have untouched ones on both sides.
    data = "synthetic:1x28x28/10:12800"
    choose = functools.partial(make_step, kind=step)
    m = measure(resolve(network, {"device": "cuda", "data": data}), choose=choose, iterations=600)
    assert m.step == step and m.sampled >= 3
    assert sum(m.parts_s.values()) == pytest.approx(m.iteration_s.mean_s, rel=1e-6)
    assert m.parts_s["update"] > 0 and m.parts_s["loop"] < 0.1 * m.iteration_s.median_s
    assert 0.5 < m.accounted < 2.0
    for layer in m.layers:
        if layer.parameters:
            assert layer.forward_s.median_s > 0 and layer.backward_s.median_s > 0, layer.name
    assert any(kept.loss == kept.loss for kept in m.kept)


def test_a_compiled_step_is_one_row_with_eager_layers():
    choose = functools.partial(make_step, kind="compiled")
    m = measure(resolve("mlp", {"device": "cuda", "data": "digits"}), choose=choose, iterations=100)
    assert [layer for layer in m.layers if "compiled" in layer.name and layer.forward_s.median_s > 0]
    assert {layer.name for layer in m.eager_layers} >= {"fc1", "output"} and m.eager_s > 0


class Alternating(nn.Module):
    """Launches different kernels every time."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.calls = nn.Linear(64, 64), nn.Linear(64, 64), 0

    def forward(self, x):
        self.calls += 1
        x = self.first(x)
        for _ in range(self.calls % 7):
            x = torch.tanh(x)
        return self.second(x)


class Pair(nn.Module):
    """The second operation keeps its output, so the first one is recomputed for it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.tanh = nn.Linear(1024, 1024), nn.Tanh()

    def forward(self, x):
        return self.tanh(self.linear(x))


class Recomputing(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.large, self.small, self.reentrant = Pair(), nn.Linear(1024, 8), reentrant

    def forward(self, x):
        return self.small(checkpoint(self.large, x, use_reentrant=self.reentrant))


def measured(model: nn.Module, width: int, iterations: int = 1_000):
    model = model.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    batches = [torch.randn(512, width, device="cuda", requires_grad=True) for _ in range(iterations)]
    with LayerClock(model, optimizer, every=10) as clock:
        for x in clock.batches(batches):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            clock.step()
    return clock.measurement()


def test_the_clock_in_a_custom_loop():
    m = measured(nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(inplace=True), nn.Linear(1024, 8)), 1024)
    layers = {layer.name: layer for layer in m.layers}
    assert layers["0"].forward_s.median_s > layers["2"].forward_s.median_s
    assert layers["0"].backward_s.median_s > layers["2"].backward_s.median_s
    assert m.device == "cuda:0" and m.parts_s["update"] > 0 and 0.5 < m.accounted < 2.0


def test_kernels_that_differ_every_time_are_attributed_by_marks():
    m = measured(Alternating(), 64)
    layers = {layer.name: layer for layer in m.layers}
    assert all(
        layers[name].forward_s.median_s > 0 and layers[name].backward_s.median_s > 0 for name in ("first", "second")
    )


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputation_has_its_own_rows(reentrant):
    m = measured(Recomputing(reentrant), 1024)
    layers = {layer.name: layer for layer in m.layers}
    again = layers[f"large.linear {RECOMPUTE}"]
    assert again.backward_s.median_s == pytest.approx(layers["large.linear"].forward_s.median_s, rel=0.5)


def test_a_bfloat16_loop_with_accumulation_and_clipping():
    layer = nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    batches = [torch.randn(16, 128, 512, device="cuda")] * 1_200
    with LayerClock(model, every=10) as clock:
        for number, x in enumerate(clock.batches(batches)):
            with torch.autocast("cuda", torch.bfloat16):
                loss = model(x).square().mean()
            (loss / 4).backward()
            if number % 4 == 3:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
    m = clock.measurement()
    assert m.batch == 64 and m.iterations <= 300
    assert all(m.parts_s[part] > 0.0 for part in ("forward", "backward", "clip", "update"))
    assert 0.9 < m.accounted < 1.1, m
    assert not [warning for warning in m.warnings if "disagree" in warning], m.warnings


def test_traces_and_events_agree_where_the_host_is_the_bottleneck():
    m = measured(nn.Sequential(*(nn.Linear(64, 64) for _ in range(60))), 64)
    assert not [warning for warning in m.warnings if "traces and events disagree" in warning], m.warnings
