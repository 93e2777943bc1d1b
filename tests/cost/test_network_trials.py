"""Layers of measured networks as trials."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paceline.cost.network_trials import network_trials
from tests.cost.test_step_overheads import BACKWARD_S, FACTORS, FORWARD_S, costed, network

FLOAT32 = ("float32", "contiguous")


def test_a_layer_of_one_operation_is_a_trial_of_it():
    found = network_trials([network(1)])
    assert set(found) == {FLOAT32}
    (forward,) = [t for t in found[FLOAT32] if t.family == "matmul" and t.seconds < 2e-3]
    assert forward.seconds == pytest.approx(FACTORS["matmul"] * 1e-3 + FORWARD_S)
    (backward,) = [t for t in found[FLOAT32] if t.family == "matmul" and t.seconds > 2e-3]
    assert backward.seconds == pytest.approx(FACTORS["matmul"] * 2e-3 + BACKWARD_S)


def test_what_the_other_operations_of_a_layer_take_is_subtracted():
    made = network(1)
    small = replace(made, timed=[*made.costed, costed("product", "forward", "relu", 1e-5)])
    before, after = (
        min(t.seconds for t in network_trials([run])[FLOAT32] if t.family == "matmul") for run in (made, small)
    )
    assert before - after == pytest.approx(1e-5)


def test_a_layer_of_several_large_operations_is_none():
    made = network(1)
    both = replace(made, timed=[*made.costed, costed("product", "forward", "relu", 9e-4)])
    assert len([t for t in network_trials([both])[FLOAT32] if t.family == "matmul"]) == 1  # its backward pass


def test_operations_in_half_precision_are_apart():
    made = network(1)
    half = [replace(each, operation=replace(each.operation, dtype="bfloat16")) for each in made.costed]
    assert set(network_trials([replace(made, timed=half)])) == {("bfloat16", "contiguous")}


def test_images_with_the_channels_last_are_apart():
    made = network(1)
    last = [replace(each, operation=replace(each.operation, channels_last=True)) for each in made.costed]
    found = network_trials([replace(made, timed=last)])
    assert {t.family for t in found["float32", "channels_last"]} >= {"convolution"}
    assert "matmul" in {t.family for t in found[FLOAT32]}
