"""A compiled module is one row: marks inside it would break its graph and measure something else."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from paceline.measurement.layer_clock import LayerClock
from paceline.measurement.mark_log import OUTSIDE
from tests.measurement.slow_layers import hooks_of, iterations


class Counting:
    """A backend that counts compilations."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, graph, example_inputs):
        self.graphs += 1
        return graph.forward


class Part(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x) * 2


@pytest.mark.parametrize("in_place", [True, False])
def test_a_compiled_submodule_is_one_row(in_place):
    torch._dynamo.reset()
    backend, part = Counting(), Part()
    if in_place:
        part.compile(backend=backend)
    model = nn.Sequential(nn.Linear(4, 4), part if in_place else torch.compile(part, backend=backend))
    with LayerClock(model, every=2, warm_up=1) as clock:
        for x in iterations(clock, 8):
            model(x).sum().backward()
    assert backend.graphs == 1 and hooks_of(model) == 0
    measured = clock.measurement()
    assert {layer.name for layer in measured.layers} == {"Sequential", "0", "1", OUTSIDE}
    (layer,) = [layer for layer in measured.layers if layer.name == "1"]
    assert layer.parameters == 40 and layer.forward_s.mean_s > 0.0 and layer.backward_s.mean_s > 0.0


@pytest.mark.parametrize("in_place", [True, False])
def test_a_model_compiled_as_a_whole(in_place):
    torch._dynamo.reset()
    backend, model = Counting(), Part()
    if in_place:
        model.compile(backend=backend)
    else:
        model = torch.compile(model, backend=backend)
    with LayerClock(model, every=2, warm_up=1) as clock:
        for x in iterations(clock, 8):
            model(x).sum().backward()
    assert backend.graphs == 1
    measured = clock.measurement()
    assert {layer.name for layer in measured.layers} == {"Part" if in_place else "OptimizedModule", OUTSIDE}
    assert measured.parts_s["forward"] > 0.0 and measured.parts_s["backward"] > 0.0
