"""Channels last: which networks get it, and that it changes the order in memory alone."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from paceline.step.build import assemble, load_data
from paceline.step.flat_parameters import FlatParameters
from paceline.step.graph import LONG_STEP_BYTES, _input_room, window_length
from paceline.step.layout import flattened_like, has_channels_last, memory_format_of, same_order, view_like
from paceline.step.make import make_step
from paceline.step.tally import Tally
from paceline.workload import resolve

LAST = torch.channels_last


def convolutions() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 2))


@pytest.mark.parametrize(
    ("precision", "on_gpu", "expected"),
    [
        ("bfloat16", True, LAST), ("tf32", True, LAST), ("float32", True, torch.contiguous_format),
        ("float32", False, LAST),
    ],
)  # fmt: skip
def test_convolutions_have_the_channels_last_where_that_is_faster(precision, on_gpu, expected):
    assert memory_format_of("auto", convolutions(), precision, on_gpu=on_gpu) == expected
    assert memory_format_of("auto", nn.Linear(2, 2), precision, on_gpu=on_gpu) == torch.contiguous_format


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        (nn.Conv2d(3, 12, 1, stride=2), torch.contiguous_format), (nn.Conv2d(6, 12, 1, 2), torch.contiguous_format),
        (nn.Conv2d(12, 64, 1, 2), torch.contiguous_format),
        (nn.Conv2d(16, 12, 1, 2), LAST), (nn.Conv2d(3, 12, 1), LAST), (nn.Conv2d(3, 12, 3, 2, 1), LAST),
    ],
)  # fmt: skip
def test_a_convolution_that_would_end_the_process_keeps_the_channels_first(layer, expected):
    """PyTorch 2.13 ends with a segmentation fault in the gradient of the weights, on a CPU with the channels last."""
    network = nn.Sequential(layer, nn.ReLU())
    assert memory_format_of("auto", network, "float32", on_gpu=False) == expected
    assert memory_format_of("auto", network, "bfloat16", on_gpu=True) == LAST


def test_a_layout_that_was_asked_for_is_used():
    assert memory_format_of("channels-last", nn.Linear(2, 2), "float32", on_gpu=False) == LAST
    assert memory_format_of("contiguous", convolutions(), "bfloat16", on_gpu=True) == torch.contiguous_format


def test_flat_parameters_keep_the_layout_and_gradients_follow_it():
    network = convolutions().to(memory_format=LAST)
    before = [p.detach().clone() for p in network.parameters()]
    flat = FlatParameters(list(network.parameters()))
    assert has_channels_last(network[0].weight) and flat.bound()
    assert all(torch.equal(p, b) for p, b in zip(network.parameters(), before, strict=True))
    gradients = [torch.randn_like(p).contiguous() for p in network.parameters()]
    pieces = flat.split(flat.gather(gradients))
    assert all(torch.equal(piece, g) for piece, g in zip(pieces, gradients, strict=True))
    weight = network[0].weight
    assert torch.equal(view_like(flattened_like(gradients[0], weight), weight), gradients[0])


def test_inputs_of_several_steps_have_the_layout_of_one():
    images = torch.randn(4, 3, 5, 5).contiguous(memory_format=LAST)
    room = _input_room(images, 3)
    assert room.shape == (3, 4, 3, 5, 5)
    assert all(torch.equal(place, images) and place.stride() == images.stride() for place in room)
    assert _input_room(torch.randn(4, 7), 3).shape == (3, 4, 7)


@pytest.mark.parametrize("kind", ["plain", "flat"])
def test_training_is_the_same_with_the_channels_last(kind):
    losses = []
    for memory_format in ("contiguous", "channels-last"):
        settings = {"data": "synthetic:3x16x16/10:60", "batch": 20, "lr": 0.01, "memory_format": memory_format}
        workload = resolve("resnet20", {**settings, "precision": "float64", "device": "cpu"})
        step, _ = make_step(assemble(workload, load_data(workload), torch.device("cpu")), kind)
        tally = Tally(1)
        step.begin(0)
        step.advance(3, tally)
        losses.append(tally.read().loss)
    assert losses[1] == pytest.approx(losses[0], rel=1e-12)


def test_a_window_has_many_short_steps_or_one_long_one():
    assert window_length(100, 1 << 28, 1 << 10) == 50
    assert window_length(7, 1 << 28, 1 << 10) == 7
    assert window_length(100, 1 << 20, 1 << 18) == 4
    assert window_length(100, 1 << 28, LONG_STEP_BYTES) == 1


def test_the_order_in_memory_is_that_of_sizes_above_one():
    contiguous = torch.empty(4, 1, 3, 3)
    assert same_order(contiguous, contiguous.to(memory_format=LAST))
    assert not same_order(torch.empty(4, 2, 3, 3), torch.empty(4, 2, 3, 3).to(memory_format=LAST))


@pytest.mark.parametrize("channels", [1, 3])
def test_views_of_a_flat_tensor_have_the_strides_of_their_parameters(channels):
    weight = torch.randn(4, channels, 3, 3).to(memory_format=LAST)
    view = view_like(flattened_like(weight, weight), weight)
    assert torch.equal(view, weight) and view.is_contiguous(memory_format=LAST)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "nesterov"])
def test_the_fused_update_is_that_of_joined_gradients(optimizer, monkeypatch):
    after = []
    for fused in (True, False):
        if not fused:
            monkeypatch.setattr("paceline.step.flat.has_fused_kernel", lambda *_: False)
        settings = {"data": "synthetic:1x16x16/10:60", "batch": 20, "lr": 0.01, "optimizer": optimizer, "l2": 0.01}
        workload = resolve("resnet20", {**settings, "precision": "float64", "device": "cpu"})
        step, _ = make_step(assemble(workload, load_data(workload), torch.device("cpu")), "flat")
        assert step.phases[0].fused is fused
        step.begin(0)
        step.advance(3, Tally(1))
        after.append(step.phases[0].flat.buffer.clone())
    torch.testing.assert_close(after[0], after[1], rtol=1e-9, atol=1e-12)
