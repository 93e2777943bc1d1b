"""The measured cost of a mark is positive and small."""

from __future__ import annotations

import pytest
import torch

from paceline.measurement.mark_cost import mark_cost_s

BACKWARD = torch.autograd.backward


@pytest.mark.serial
def test_the_costs_of_marks_are_positive_and_small():
    costs = mark_cost_s()
    assert set(costs) == {"edge", "around", "module", "node"}
    assert all(0.0 <= cost < 100e-6 for cost in costs.values())
    assert costs["module"] > 0.0 and costs["node"] > 0.0  # the others may be within what they know of themselves
    assert torch.autograd.backward is BACKWARD


@pytest.mark.serial
def test_the_cost_can_be_measured_with_gradients_disabled():
    with torch.no_grad():
        assert mark_cost_s()["node"] > 0.0
        assert not torch.is_grad_enabled()
