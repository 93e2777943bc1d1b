"""Each network has the parameters it was published with: how many, of which shapes, under which names."""

from __future__ import annotations

import itertools
import subprocess
import sys

import pytest
import torch
from torch import nn

from paceline.networks import build, built_in_networks, layers

COUNTS = {
    "mlp": 39_760,
    "dnn": 55_050,
    "rnn": 128 * (28 + 128) + 2 * 128 + (128 * 10 + 10),
    "gru": 3 * 128 * (28 + 128) + 2 * 3 * 128 + (128 * 10 + 10),
    "lstm": 82_186,
    "lenet5": 61_706,
    "alexnet": 61_100_840,
    "vgg11": 132_863_336,
    "vgg16": 138_357_544,
    "googlenet": 13_004_888,
    "resnet18": 11_689_512,
    "resnet50": 25_557_032,
    "resnet20": 269_722,
    "textlstm": 65 * 64 + (4 * 256 * (64 + 256) + 2 * 4 * 256) + (256 * 65 + 65),
    # A block of width w: attention 4 w^2 + 4 w, two norms 4 w, two linears 8 w^2 + 5 w.
    "transformer": 65 * 128 + 64 * 128 + 4 * (12 * 128**2 + 13 * 128) + 2 * 128 + (128 * 65 + 65),
    "recursive": 7 * 32 + (32 * 96 + 32) + (32 * 2 + 2),
    "rbm": 784 * 256 + 256 + 784,
    "dbn": (784 * 256 + 256 + 784) + (256 * 256 + 256 + 256) + (256 * 10 + 10),
    "autoencoder": 2 * (784 * 256 + 256 * 128 + 128 * 20) + (256 + 128 + 20) + (128 + 256 + 784),
    # A code's mean and variance; a class is ten more inputs of the first layers.
    "vae": 2 * (784 * 256 + 256 * 128) + 3 * 128 * 20 + (256 + 128 + 40) + (128 + 256 + 784),
    "cvae": 2 * (784 * 256 + 256 * 128) + 3 * 128 * 20 + (256 + 128 + 40) + (128 + 256 + 784) + 10 * (256 + 128),
    # Kernels of 4 x 4; 32 maps of 7 x 7 and 128 units before the code and after it.
    "deconvolutional": 2 * (16 * (16 + 16 * 32) + 32 * 49 * 128 + 128 * 20)
    + (16 + 32 + 128 + 20)
    + (128 + 32 * 49 + 16 + 1),
    # Maps of 7 x 7 from 64 numbers without biases, which the norm has; a score from as many maps.
    "gan": (64 * 64 * 49 + 2 * 64 + 16 * 64 * 32 + 32 + 2 * 32 + 16 * 32 + 1)
    + (16 * 32 + 32 + 16 * 32 * 64 + 64 + 64 * 49 + 1),
}

NAMES = {
    "mlp": "fc1 output",
    "dnn": "fc1 fc2 output",
    "rnn": "rnn output",
    "gru": "gru output",
    "lstm": "lstm output",
    "lenet5": "conv1 conv2 fc1 fc2 output",
    "alexnet": "conv1 conv2 conv3 conv4 conv5 fc1 fc2 output",
    "vgg11": "conv1 conv2 conv3 conv4 conv5 conv6 conv7 conv8 fc1 fc2 output",
    "vgg16": " ".join(f"conv{number}" for number in range(1, 14)) + " fc1 fc2 output",
    "textlstm": "embedding lstm output",
    "recursive": "embedding compose output",
    "rbm": "hidden visible",
    "dbn": "rbm1.hidden rbm1.visible rbm2.hidden rbm2.visible output",
}


def on_meta(name: str, **options: object) -> nn.Module:
    described = {description.name: description for description in built_in_networks()}[name]
    with torch.device("meta"):
        return build(name, shape=described.shape, classes=described.classes, kind=described.kinds[0], **options)


def shapes(module: nn.Module) -> list[tuple[int, ...]]:
    return [tuple(parameter.shape) for parameter in module.parameters()]


def test_catalogue_has_the_published_parameter_counts():
    assert {description.name: description.parameters for description in built_in_networks()} == COUNTS


def test_catalogue_agrees_with_the_modules():
    for description in built_in_networks():
        network = on_meta(description.name)
        assert description.parameters == sum(parameter.numel() for parameter in network.parameters())
        assert description.layers == layers(network)
        assert description.description and "\n" not in description.description


@pytest.mark.parametrize("name", NAMES)
def test_layers_are_named_as_in_the_papers(name):
    assert " ".join(layer.name for layer in layers(on_meta(name))) == NAMES[name]


@pytest.mark.parametrize("name", COUNTS)
def test_every_network_ends_in_a_layer_called_output(name):
    last = "visible" if name == "rbm" else "output"  # the units of a Boltzmann machine are all its inputs
    assert layers(on_meta(name))[-1].name.rpartition(".")[2] == last


def test_googlenet_without_auxiliary_heads():
    assert sum(layer.parameters for layer in layers(on_meta("googlenet", auxiliary=False))) == 6_624_904


def test_feedforward_networks_are_plain_sequentials_of_simple_layers():
    assert [name for name, _ in on_meta("mlp").named_children()] == [
        "flatten",
        "fc1",
        "activation1",
        "output",
    ]
    dnn = on_meta("dnn")
    assert type(dnn) is nn.Sequential
    assert [type(child) for child in dnn] == [
        nn.Flatten,
        *(nn.Linear, nn.Tanh, nn.Dropout) * 2,
        nn.Linear,
    ]


def convolution(outputs: int, inputs: int, size: int) -> list[tuple[int, ...]]:
    return [(outputs, inputs, size, size), (outputs,)]


def normed(outputs: int, inputs: int, size: int) -> list[tuple[int, ...]]:
    return [(outputs, inputs, size, size), (outputs,), (outputs,)]


def linear(outputs: int, inputs: int) -> list[tuple[int, ...]]:
    return [(outputs, inputs), (outputs,)]


ALEXNET = [
    *convolution(64, 3, 11),
    *convolution(192, 64, 5),
    *convolution(384, 192, 3),
    *convolution(256, 384, 3),
    *convolution(256, 256, 3),
    *linear(4096, 9216),
    *linear(4096, 4096),
    *linear(1000, 4096),
]

VGG_HEAD = [*linear(4096, 25088), *linear(4096, 4096), *linear(1000, 4096)]
VGG11_CHANNELS = [3, 64, 128, 256, 256, 512, 512, 512, 512]
VGG16_CHANNELS = [3, 64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512]


def vgg(channels: list[int]) -> list[tuple[int, ...]]:
    pairs = itertools.pairwise(channels)
    return [shape for inputs, outputs in pairs for shape in convolution(outputs, inputs, 3)] + VGG_HEAD


def resnet18() -> list[tuple[int, ...]]:
    table = normed(64, 3, 7)
    table += (normed(64, 64, 3) + normed(64, 64, 3)) * 2
    for inputs, outputs in ((64, 128), (128, 256), (256, 512)):
        table += normed(outputs, inputs, 3) + normed(outputs, outputs, 3) + normed(outputs, inputs, 1)
        table += normed(outputs, outputs, 3) + normed(outputs, outputs, 3)
    return table + linear(1000, 512)


def resnet50() -> list[tuple[int, ...]]:
    table = normed(64, 3, 7)
    for inputs, width, blocks in ((64, 64, 3), (256, 128, 4), (512, 256, 6), (1024, 512, 3)):
        table += normed(width, inputs, 1) + normed(width, width, 3) + normed(4 * width, width, 1)
        table += normed(4 * width, inputs, 1)
        later = normed(width, 4 * width, 1) + normed(width, width, 3) + normed(4 * width, width, 1)
        table += later * (blocks - 1)
    return table + linear(1000, 2048)


def resnet20() -> list[tuple[int, ...]]:
    table = normed(16, 3, 3)
    for inputs, outputs in ((16, 16), (16, 32), (32, 64)):
        table += normed(outputs, inputs, 3) + normed(outputs, outputs, 3) * 5
    return table + linear(10, 64)


def inception(inputs: int, one: int, narrow: int, three: int, narrow2: int, three2: int, pooled: int):
    return [
        *normed(one, inputs, 1),
        *normed(narrow, inputs, 1),
        *normed(three, narrow, 3),
        *normed(narrow2, inputs, 1),
        *normed(three2, narrow2, 3),
        *normed(pooled, inputs, 1),
    ]


def googlenet() -> list[tuple[int, ...]]:
    return [
        *normed(64, 3, 7),
        *normed(64, 64, 1),
        *normed(192, 64, 3),
        *inception(192, 64, 96, 128, 16, 32, 32),
        *inception(256, 128, 128, 192, 32, 96, 64),
        *inception(480, 192, 96, 208, 16, 48, 64),
        *inception(512, 160, 112, 224, 24, 64, 64),
        *inception(512, 128, 128, 256, 24, 64, 64),
        *inception(512, 112, 144, 288, 32, 64, 64),
        *inception(528, 256, 160, 320, 32, 128, 128),
        *inception(832, 256, 160, 320, 32, 128, 128),
        *inception(832, 384, 192, 384, 48, 128, 128),
        *(normed(128, 512, 1) + linear(1024, 2048) + linear(1000, 1024)),
        *(normed(128, 528, 1) + linear(1024, 2048) + linear(1000, 1024)),
        *linear(1000, 1024),
    ]


TABLES = {
    "alexnet": ALEXNET,
    "vgg11": vgg(VGG11_CHANNELS),
    "vgg16": vgg(VGG16_CHANNELS),
    "googlenet": googlenet(),
    "resnet18": resnet18(),
    "resnet50": resnet50(),
    "resnet20": resnet20(),
}


@pytest.mark.parametrize("name", TABLES)
def test_every_parameter_has_torchvisions_shape_in_torchvisions_order(name):
    assert shapes(on_meta(name)) == TABLES[name]


def strides(network: nn.Module) -> dict[str, int]:
    return {
        name: layer.stride[0]
        for name, layer in network.named_modules()
        if isinstance(layer, nn.Conv2d) and layer.stride[0] > 1
    }


def test_resnet50_strides_in_its_3x3_convolutions():
    expected = {"conv1": 2}
    for stage in (2, 3, 4):
        expected |= {f"layer{stage}.0.conv2": 2, f"layer{stage}.0.downsample.0": 2}
    assert strides(on_meta("resnet50")) == expected


def test_googlenet_batch_norm_has_torchvisions_epsilon():
    norms = [layer for layer in on_meta("googlenet").modules() if isinstance(layer, nn.BatchNorm2d)]
    assert len(norms) == 59
    assert {norm.eps for norm in norms} == {0.001}


def test_layers_count_a_shared_parameter_once():
    tied = nn.Sequential(nn.Embedding(7, 3), nn.Linear(3, 7, bias=False))
    tied[1].weight = tied[0].weight
    assert [(layer.name, layer.kind, layer.parameters) for layer in layers(tied)] == [
        ("0", "Embedding", 21),
        ("1", "Linear", 0),
    ]


def test_catalogue_leaves_the_random_state_alone():
    built_in_networks.cache_clear()
    before = torch.get_rng_state()
    built_in_networks()
    assert torch.equal(before, torch.get_rng_state())


def test_importing_does_not_load_pytorch():
    code = "import sys, paceline.networks; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
