"""A network adapts to the data, or one line says why it cannot."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

from paceline.errors import NetworkError
from paceline.networks import build, built_in_networks, layers
from paceline.networks.known import KINDS

IMAGE = (
    "mlp",
    "dnn",
    "rnn",
    "gru",
    "lstm",
    "lenet5",
    "alexnet",
    "vgg11",
    "vgg16",
    "googlenet",
    "resnet18",
    "resnet50",
    "resnet20",
)
SMALLEST = {
    "lenet5": 1,
    "alexnet": 63,
    "vgg11": 32,
    "vgg16": 32,
    "googlenet": 15,
    "resnet18": 1,
    "resnet50": 1,
    "resnet20": 1,
}


def on_meta(name: str, shape: tuple[int, ...], classes: int = 10, **settings: object) -> nn.Module:
    with torch.device("meta"):
        return build(name, shape=shape, classes=classes, **settings)


def output_shape(network: nn.Module, shape: tuple[int, ...]) -> tuple[int, ...]:
    with torch.device("meta"):
        return tuple(network.eval()(torch.empty(4, *shape)).shape)


def parameters(network: nn.Module) -> int:
    return sum(layer.parameters for layer in layers(network))


@pytest.mark.parametrize("name", IMAGE)
@pytest.mark.parametrize(("shape", "classes"), [((1, 64, 64), 2), ((3, 97, 65), 1), ((4, 224, 230), 37)])
def test_any_channels_sizes_and_classes(name, shape, classes):
    assert output_shape(on_meta(name, shape, classes), shape) == (4, classes)


@pytest.mark.parametrize("name", SMALLEST)
def test_the_smallest_image_passes(name):
    side = SMALLEST[name]
    for shape in ((3, side, side), (3, side, side + 1), (3, side + 2, side)):
        assert output_shape(on_meta(name, shape), shape) == (4, 10)


@pytest.mark.parametrize("name", [name for name, side in SMALLEST.items() if side > 1])
def test_a_smaller_image_is_refused_and_rightly_so(name):
    side = SMALLEST[name]
    for shape in ((3, side - 1, side), (3, side, side - 1)):
        with pytest.raises(NetworkError, match=rf"too small for '{name}': it needs at least {side} x {side}"):
            on_meta(name, shape)
    with torch.device("meta"), pytest.raises(RuntimeError):
        on_meta(name, (3, side, side)).eval()(torch.empty(4, 3, side - 1, side - 1))


def test_lenet5_pads_to_the_papers_size_and_grows_fc1_beyond_it():
    assert parameters(on_meta("lenet5", (1, 8, 8))) == 61_706
    assert parameters(on_meta("lenet5", (1, 28, 28))) == 61_706
    assert parameters(on_meta("lenet5", (3, 32, 32))) == 62_006
    assert on_meta("lenet5", (1, 64, 48)).fc1.in_features == 16 * 13 * 9
    for side in range(1, 70):
        shape = (1, side, 2 * side)
        assert output_shape(on_meta("lenet5", shape), shape) == (4, 10)


def test_alexnet_and_vgg_average_only_what_has_another_size():
    assert not any(isinstance(layer, nn.AdaptiveAvgPool2d) for layer in on_meta("alexnet", (3, 224, 224)))
    assert not any(isinstance(layer, nn.AdaptiveAvgPool2d) for layer in on_meta("vgg11", (3, 224, 224)))
    assert any(isinstance(layer, nn.AdaptiveAvgPool2d) for layer in on_meta("vgg11", (3, 224, 192)))


def test_feedforward_flattens_anything():
    for name in ("mlp", "dnn"):
        assert on_meta(name, (13,), kind="table").fc1.in_features == 13
        assert on_meta(name, (2, 3, 4)).fc1.in_features == 24
        assert on_meta(name, (2, 3, 4, 5)).fc1.in_features == 120


def test_lstm_reads_one_row_of_every_channel_a_step():
    torch.manual_seed(0)
    network = build("lstm", shape=(3, 5, 4), classes=2)
    assert network.lstm.input_size == 12
    image = torch.randn(2, 3, 5, 4)
    rows = torch.stack([image[:, :, row].reshape(2, 12) for row in range(5)], dim=1)
    torch.testing.assert_close(network(image), network.output(network.lstm(rows)[0][:, -1]))
    assert build("lstm", shape=(5, 4), classes=2)(torch.randn(2, 5, 4)).shape == (2, 2)


def test_options_change_sizes():
    assert [layer.name for layer in layers(on_meta("mlp", (9,), kind="table", hidden=[8, 7, 6]))] == [
        *("fc1", "fc2", "fc3", "output")
    ]
    assert on_meta("mlp", (9,), kind="table", hidden=5).fc1.out_features == 5
    assert on_meta("lstm", (1, 8, 8), hidden=16).output.in_features == 16
    assert on_meta("textlstm", (8,), kind="text", embedding=3, hidden=4, depth=2).lstm.num_layers == 2
    small = on_meta("transformer", (8,), kind="text", depth=2, width=12, heads=3)
    assert [name for name, _ in small.named_children() if name.startswith("block")] == ["block1", "block2"]


TEXT_NAMES = "textlstm, transformer"
WRONG = [
    ("lenet", {}, "network 'lenet' is unknown: did you mean lenet5"),
    ("qqq", {}, "network 'qqq' is unknown: known: alexnet, autoencoder"),
    ("mlp", {"kind": "imge"}, "kind 'imge' is unknown: did you mean image?"),
    ("alexnet", {"kind": "text"}, f"takes image data, not text: for text use {TEXT_NAMES}"),
    ("mlp", {"kind": "text"}, f"takes image or table data, not text: for text use {TEXT_NAMES}"),
    ("textlstm", {}, "takes text data, not image: for image use mlp, dnn, rnn, gru, lstm, lenet5"),
    ("lstm", {"kind": "table"}, "takes image data, not table: for table use mlp, dnn"),
    ("lstm", {"shape": (28,)}, "shape (28,) does not fit 'lstm'"),
    ("lenet5", {"shape": (28, 28)}, "shape (28, 28) does not fit 'lenet5'"),
    ("resnet50", {"shape": (28,)}, "it takes images (channels, height, width)"),
    ("transformer", {"kind": "text", "shape": (8, 8)}, "it takes windows of characters (length,)"),
    ("mlp", {"shape": ()}, "shape () must hold positive whole numbers"),
    ("mlp", {"shape": (1, 0, 3)}, "shape (1, 0, 3) must hold"),
    ("mlp", {"classes": 0}, "classes 0 must be"),
    ("mlp", {"dropout": 1.0}, "dropout 1.0 must be at least 0 and below 1"),
    ("mlp", {"dropout": -0.1}, "dropout -0.1"),
    ("mlp", {"dropout": float("nan")}, "dropout nan"),
    ("mlp", {"activation": "swish"}, "activation 'swish' is unknown: use one of sigmoid, tanh, relu"),
    ("gru", {"shape": (28,)}, "shape (28,) does not fit 'gru'"),
    ("rnn", {"activation": "sigmoid"}, "activation 'sigmoid' cannot be set for 'rnn': use tanh or relu"),
    ("rbm", {"activation": "relu"}, "activation 'relu' cannot be set for 'rbm'"),
    ("rbm", {"k": 0}, "option k = 0 must be"),
    ("recursive", {"kind": "tree", "shape": (6,)}, "a tree has 2^n - 1 places"),
    ("recursive", {}, "takes tree data, not image"),
    ("lstm", {"activation": "relu"}, "activation 'relu' cannot be set for 'lstm'"),
    ("mlp", {"hiden": 3}, "option 'hiden' is unknown to network 'mlp': did you mean hidden?"),
    ("lenet5", {"heads": 3}, "option 'heads' is unknown to network 'lenet5': it has none"),
    ("mlp", {"hidden": 0}, "option hidden = 0 must be"),
    ("mlp", {"hidden": []}, "option hidden = [] must be"),
    ("mlp", {"hidden": "many"}, "option hidden = 'many' must be"),
    ("googlenet", {"shape": (3, 32, 32), "auxiliary": 1}, "option auxiliary = 1 must be true or false"),
    ("transformer", {"kind": "text", "shape": (8,), "heads": 3}, "heads = 3 must divide width = 128"),
    ("transformer", {"kind": "text", "shape": (8,), "depth": 0}, "option depth = 0 must be"),
    ("mlp", {"init": "zeros"}, "init 'zeros' would keep all units of a layer equal"),
    ("mlp", {"init": "tiny"}, "init 'tiny' is unknown: use default, small, small:STD, xavier or kaiming"),
    ("mlp", {"init": "small:x"}, "init 'small:x' must end in a positive number"),
    ("mlp", {"init": "small:0"}, "init 'small:0' must end"),
    ("mlp", {"init": "small:inf"}, "init 'small:inf' must end"),
    ("mlp", {"init": "small:"}, "init 'small:' must end"),
    ("mlp", {"init": "xavier:2"}, "init 'xavier:2' is unknown"),
]


@pytest.mark.parametrize(("name", "settings", "message"), WRONG, ids=lambda value: str(value)[:40])
def test_what_cannot_be_built_is_refused_in_one_line(name, settings, message):
    with pytest.raises(NetworkError, match=re.escape(message)) as caught:
        build(name, **{"shape": (1, 28, 28), "classes": 10, **settings})
    assert "\n" not in str(caught.value)


def test_a_refused_network_of_each_kind_names_ones_that_fit():
    for description in built_in_networks():
        for kind in KINDS:
            if kind not in description.kinds:
                with pytest.raises(NetworkError, match=f"for {kind} use "):
                    build(description.name, shape=description.shape, classes=2, kind=kind)


def test_a_text_longer_than_the_window_is_refused():
    network = build("transformer", shape=(8,), classes=5, kind="text")
    with pytest.raises(NetworkError, match="window of 9 characters is longer than the 8"):
        network(torch.zeros(1, 9, dtype=torch.long))
