"""Each layer's work is counted in one forward pass, for all kinds of inputs and outputs."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence

from paceline.measurement.shapes import LayerShape, ShapeRecorder
from tests.measurement.slow_layers import hooks_of


def shapes_of(model: nn.Module, *inputs, **keywords) -> dict[str, LayerShape]:
    watch = ShapeRecorder(model)
    with watch.recording():
        model(*inputs, **keywords)
    assert hooks_of(model) == 0
    return watch.layers


def test_a_linear_layer():
    shape = shapes_of(nn.Linear(4, 6), torch.zeros(5, 4))["Linear"]
    assert shape.flops == 2 * 5 * 4 * 6
    assert shape.parameters == 4 * 6 + 6 and shape.parameter_bytes == 4 * 30
    assert shape.bytes == 4 * (5 * 4 + 5 * 6 + 30)
    assert shape.activation_bytes == 4 * 5 * 6


def test_a_convolution_with_groups():
    shape = shapes_of(nn.Conv2d(4, 8, 3, groups=2, padding=1), torch.zeros(2, 4, 5, 5))["Conv2d"]
    assert shape.flops == 2 * (2 * 8 * 5 * 5) * (2 * 3 * 3)


def test_backward_flops_depend_on_what_is_trained():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    model[0].requires_grad_(False)
    model[3].requires_grad_(False)
    layers = shapes_of(model, torch.zeros(2, 4))
    ratios = [layers[name].backward_flops / layers[name].flops for name in "0123"]
    assert ratios == [0, 1, 1, 1]
    assert [layers[name].parameter_bytes for name in "013"] == [0, 80, 0]
    model.requires_grad_(True)
    with torch.no_grad():
        layers = shapes_of(model, torch.zeros(2, 4))
    assert [layers[name].backward_flops / layers[name].flops for name in "0123"] == [1, 2, 1, 2]


def test_tied_weights_are_counted_once():
    model = nn.Sequential(nn.Embedding(6, 4), nn.Linear(4, 6, bias=False))
    model[1].weight = model[0].weight
    layers = shapes_of(model, torch.tensor([1, 2]))
    assert sum(shape.parameters for shape in layers.values()) == 24
    assert layers["1"].bytes == 4 * (2 * 4 + 2 * 6 + 24)


def test_a_module_called_twice():
    layer = nn.Linear(4, 4)
    layers = shapes_of(nn.Sequential(layer, layer), torch.zeros(2, 4))
    assert layers["0"].calls == 2 and layers["0"].flops == 2 * (2 * 2 * 4 * 4)
    assert layers["0"].parameters == 20


def test_recording_again_drops_earlier_counts():
    model = nn.Linear(4, 4)
    watch = ShapeRecorder(model)
    for _ in range(2):
        with watch.recording():
            model(torch.zeros(2, 4))
    assert watch.layers["Linear"].calls == 1 and watch.layers["Linear"].parameters == 20


def test_a_lazy_layer_has_parameters_after_the_pass():
    layers = shapes_of(nn.Sequential(nn.LazyLinear(3)), torch.zeros(2, 4))
    assert layers["0"].parameters == 15


@pytest.mark.parametrize("packed", [True, False])
def test_an_lstm_with_and_without_packing(packed):
    x = pack_sequence([torch.zeros(5, 4), torch.zeros(3, 4)]) if packed else torch.zeros(8, 1, 4)
    shape = shapes_of(nn.LSTM(4, 6), x)["LSTM"]
    assert shape.flops == 2 * 8 * (4 * 6 * (4 + 6))
    assert shape.activation_bytes >= 4 * 8 * 6


def test_inputs_by_keyword():
    assert shapes_of(nn.Linear(4, 6), input=torch.zeros(5, 4))["Linear"].bytes == 4 * (20 + 30 + 30)


def test_a_layer_that_returns_no_tensor():
    class Nothing(nn.Module):
        def forward(self, x: torch.Tensor) -> None:
            return None

    shape = shapes_of(Nothing(), torch.zeros(3))["Nothing"]
    assert (shape.calls, shape.flops) == (1, 0.0)
