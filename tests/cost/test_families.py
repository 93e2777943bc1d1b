"""The work of an operation equals the value worked out by hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from paceline.cost.families import FAMILIES
from paceline.cost.operation import Operation
from tests.cost.invented import read


def of_family(shape, *families: str) -> list[Operation]:
    return [operation for operation in shape.operations if operation.family in families]


def sizes(operation: Operation) -> dict[str, int]:
    return dict(zip(FAMILIES[operation.family].fields, operation.sizes, strict=True))


def test_a_linear_layer_is_one_product_forward_and_one_for_its_weights():
    shape = read(nn.Linear(5, 7), torch.empty(3, 5))
    forward, backward = of_family(shape, "matmul")
    assert sizes(forward) == {"batch": 1, "m": 3, "n": 7, "k": 5, "layout": 0, "bias": 1}
    assert forward.flops == 2 * 3 * 5 * 7 and forward.elements == 3 * 5 + 5 * 7 + 3 * 7
    assert backward.direction == "backward" and backward.flops == 2 * 3 * 5 * 7
    (bias,) = [o for o in of_family(shape, "reduce") if o.direction == "backward"]
    assert sizes(bias) == {"outer": 1, "reduced": 3, "inner": 7}


def test_all_but_the_first_layer_have_a_gradient_of_their_input():
    shape = read(nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 2)), torch.empty(3, 5))
    products = [(o.row, o.direction) for o in of_family(shape, "matmul")]
    assert products.count(("0", "backward")) == 1 and products.count(("2", "backward")) == 2


def test_a_linear_layer_without_bias_is_a_product_without_one():
    shape = read(nn.Linear(5, 7, bias=False), torch.empty(3, 5))
    assert [sizes(o)["bias"] for o in of_family(shape, "matmul")] == [0, 0]
    assert not [o for o in of_family(shape, "reduce") if o.direction == "backward"]


@pytest.mark.parametrize(
    ("layer", "x", "flops", "moved"),
    [
        (nn.Conv2d(4, 6, 3), (2, 4, 9, 8), 2 * 2 * 6 * 7 * 6 * 4 * 9, 2 * 4 * 72 + 6 * 4 * 9 + 2 * 6 * 42),
        (nn.Conv2d(4, 6, 3, stride=2), (2, 4, 9, 9), 2 * 2 * 6 * 16 * 4 * 9, 2 * 4 * 81 + 6 * 4 * 9 + 2 * 6 * 16),
        (nn.Conv2d(4, 6, 3, padding=1), (2, 4, 9, 9), 2 * 2 * 6 * 81 * 4 * 9, 2 * 4 * 81 + 6 * 4 * 9 + 2 * 6 * 81),
        (nn.Conv2d(4, 6, 3, groups=2), (2, 4, 9, 9), 2 * 2 * 6 * 49 * 2 * 9, 2 * 4 * 81 + 6 * 2 * 9 + 2 * 6 * 49),
        (nn.Conv2d(4, 4, 3, groups=4), (2, 4, 9, 9), 2 * 2 * 4 * 49 * 9, 2 * 4 * 81 + 4 * 9 + 2 * 4 * 49),
        (nn.Conv1d(4, 6, 3), (2, 4, 9), 2 * 2 * 6 * 7 * 4 * 3, 2 * 4 * 9 + 6 * 4 * 3 + 2 * 6 * 7),
        (nn.Conv3d(4, 6, 3), (2, 4, 5, 5, 5), 2 * 2 * 6 * 27 * 4 * 27, 2 * 4 * 125 + 6 * 4 * 27 + 2 * 6 * 27),
        (
            nn.ConvTranspose2d(4, 6, 3, stride=2),
            (2, 4, 5, 5),
            2 * 2 * 4 * 25 * 6 * 9,
            2 * 6 * 121 + 4 * 6 * 9 + 2 * 4 * 25,
        ),
        (nn.ConvTranspose2d(4, 6, 3, groups=2), (2, 4, 5, 5), 2 * 2 * 4 * 25 * 3 * 9, 2 * 6 * 49 + 4 * 3 * 9 + 2 * 100),
    ],
    ids=str,
)
def test_a_convolution_by_hand(layer, x, flops, moved):
    shape = read(nn.Sequential(layer, nn.ReLU(), nn.Flatten()), torch.empty(x))
    (forward,) = of_family(shape, "convolution")
    assert (forward.flops, forward.elements) == (flops, moved)
    (backward,) = of_family(shape, "convolution_backward", "convolution_backward_weight")
    assert backward.family == "convolution_backward_weight" and backward.flops == flops
    assert sizes(forward)["bias"] == 1 and sizes(backward) == sizes(forward)


def test_a_second_convolution_has_two_products_backward():
    shape = read(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 5, 3, bias=False)), torch.empty(2, 3, 9, 9))
    (backward,) = of_family(shape, "convolution_backward")
    assert backward.row == "1" and backward.flops == 2 * (2 * 2 * 5 * 25 * 4 * 9) and sizes(backward)["bias"] == 0


def test_an_lstm_by_hand():
    steps, batch, inputs, hidden = 6, 3, 5, 7
    weights = 4 * hidden * (inputs + hidden)
    shape = read(nn.LSTM(inputs, hidden, batch_first=True), torch.empty(batch, steps, inputs))
    (forward,) = of_family(shape, "recurrent")
    assert sizes(forward) == {"steps": steps, "batch": batch, "inputs": inputs, "hidden": hidden}
    assert forward.flops == 2 * steps * batch * weights
    assert forward.elements == steps * (weights + 6 * batch * hidden)
    (backward,) = of_family(shape, "recurrent_backward")
    assert backward.flops == 2 * forward.flops


def test_a_deep_lstm_is_one_operation_per_layer_and_direction():
    shape = read(nn.LSTM(5, 7, num_layers=2, bidirectional=True), torch.empty(6, 3, 5))
    assert [sizes(o)["inputs"] for o in of_family(shape, "recurrent")] == [5, 5, 14, 14]


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inputs = nn.Linear(32, 96)

    def forward(self, x):
        q, k, v = self.inputs(x).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        return nn.functional.scaled_dot_product_attention(q, k, v)


def test_attention_by_hand():
    shape = read(Attention, torch.empty(2, 10, 32))
    (forward,) = of_family(shape, "attention")
    assert sizes(forward) == {"heads": 2 * 4, "queries": 10, "keys": 10, "width": 8, "causal": 0}
    assert forward.flops == 2 * (2 * 8 * 10 * 10 * 8) and forward.elements == 2 * 8 * 20 * 8
    (backward,) = of_family(shape, "attention_backward")
    assert backward.flops == 2.5 * forward.flops


@pytest.mark.parametrize(
    ("layer", "x", "family", "expected"),
    [
        (nn.BatchNorm2d(4), (2, 4, 3, 5), "batch_norm", {"n": 2, "c": 4, "hw": 15}),
        (nn.BatchNorm1d(4), (6, 4), "batch_norm", {"n": 6, "c": 4, "hw": 1}),
        (nn.GroupNorm(2, 4), (2, 4, 3, 5), "batch_norm", {"n": 2, "c": 4, "hw": 15}),
        (nn.LayerNorm(8), (2, 3, 8), "layer_norm", {"rows": 6, "width": 8}),
        (nn.Softmax(-1), (2, 3, 8), "softmax", {"rows": 6, "width": 8}),
        (nn.MaxPool2d(2), (2, 4, 8, 6), "max_pool", {"planes": 8, "h": 8, "w": 6, "p": 4, "q": 3, "window": 4}),
        (nn.AvgPool2d(2), (2, 4, 8, 6), "average_pool", {"planes": 8, "h": 8, "w": 6, "p": 4, "q": 3, "window": 4}),
        (nn.AvgPool1d(2), (2, 4, 8), "average_pool", {"planes": 8, "h": 1, "w": 8, "p": 1, "q": 4, "window": 2}),
        (
            nn.AdaptiveAvgPool2d(2),
            (2, 4, 8, 6),
            "average_pool",
            {"planes": 8, "h": 8, "w": 6, "p": 2, "q": 2, "window": 12},
        ),
        (nn.AdaptiveAvgPool2d(1), (2, 4, 8, 6), "reduce", {"outer": 8, "reduced": 48, "inner": 1}),
        (nn.ReLU(), (2, 3), "relu", {"elements": 6}),
        (nn.GELU(), (2, 3), "gelu", {"elements": 6}),
        (nn.Dropout(0.5), (2, 3), "dropout", {"elements": 6}),
        (nn.SiLU(), (2, 3), "tanh", {"elements": 6}),
    ],
    ids=str,
)
def test_other_layers_by_hand(layer, x, family, expected):
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.layer = nn.Parameter(torch.ones(x[-1])), layer

        def forward(self, samples):
            return self.layer(samples * self.scale)

    shape = read(Scaled, torch.empty(x))
    forward = next(o for o in shape.operations if o.row == "layer" and o.direction == "forward" and o.sizes != (1,))
    assert forward.family == family and sizes(forward) == expected
    assert any(o.row == "layer" and o.direction == "backward" for o in shape.operations)
    assert not shape.unknown


def test_an_embedding_by_hand():
    shape = read(nn.Embedding(50, 8), torch.empty(4, 6, dtype=torch.int64))
    (forward,), (backward,) = of_family(shape, "embedding"), of_family(shape, "embedding_backward")
    assert sizes(forward) == sizes(backward) == {"rows": 24, "width": 8, "vocabulary": 50}
    assert backward.elements - forward.elements == 50 * 8  # the whole gradient is written


@pytest.mark.parametrize(("name", "family"), FAMILIES.items())
def test_features_and_work_are_finite_for_the_smallest_operation(name, family):
    smallest = (1,) * len(family.fields)
    assert all(0 <= value < 100 for value in family.features_of(smallest))
    flops, elements = family.work_of(smallest)
    assert flops >= 0 and elements > 0
