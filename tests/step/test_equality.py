"""A compiled step is compared with the uncompiled one by what rounding explains, not by a constant."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from paceline.step.compiled_phase import CompiledPhase
from paceline.step.equality import compare_first_update
from paceline.step.flat import FlatStep
from paceline.step.phase import Outcome
from paceline.step.traced_step import trace_step
from tests.step.small_parts import parts_for, rows


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))


class Uncompiled(CompiledPhase):
    """Runs the recorded graph as it is, with an error where the test wants one."""

    error = 0.0

    def step(self, batch, generator, lr=None):  # type: ignore[no-untyped-def]
        start = self.flat.buffer.clone()
        outcome = self.uncompiled(batch, generator, lr)
        self.flat.buffer.add_(self.flat.buffer - start, alpha=self.error)
        return outcome


class UncheckedStep(FlatStep):
    phase_type = Uncompiled


@pytest.mark.parametrize(("error", "equal"), [(0.0, True), (1e-6, True), (1e-3, False), (float("nan"), False)])
def test_what_rounding_does_not_explain_is_not_equal(error, equal, monkeypatch):
    monkeypatch.setattr(Uncompiled, "error", error)
    parts = parts_for(network(), rows())
    before = [p.detach().clone() for p in parts.network.state_dict().values()]
    difference = compare_first_update(parts, UncheckedStep(parts))
    assert (difference.excess <= 1.0) is equal
    assert all(torch.equal(p, b) for p, b in zip(parts.network.state_dict().values(), before, strict=True))


def test_in_bfloat16_much_more_is_rounding(monkeypatch):
    monkeypatch.setattr(Uncompiled, "error", 1e-2)
    parts = parts_for(network(), rows(), precision="bfloat16")
    assert compare_first_update(parts, UncheckedStep(parts)).excess <= 1.0
    monkeypatch.setattr(Uncompiled, "error", 2.0)
    assert compare_first_update(parts, UncheckedStep(parts)).excess > 1.0


def test_a_recorded_step_sees_tensors_as_they_are_when_it_runs():
    parts = parts_for(network(), rows(), optimizer="adam")
    phase = UncheckedStep(parts).phases[0]
    phase.lr.fill_(0.1)
    batch = next(parts.feeder.batches(0))

    def step(x, y):  # type: ignore[no-untyped-def]
        outcome: Outcome = phase.uncompiled((x, y), parts.generator)
        return (outcome.loss,)

    kept = {name: value.clone() for name, value in parts.network.state_dict().items()}
    traced = trace_step(step, batch, phase.flat)
    assert all(torch.equal(value, kept[name]) for name, value in parts.network.state_dict().items())
    assert float(phase.state["updates"]) == 0.0
    assert traced.inputs[0] is phase.flat.buffer
    with torch.no_grad():
        first = traced.graph(*traced.inputs, *batch)[0]
        second = traced.graph(*traced.inputs, *batch)[0]
    assert float(phase.state["updates"]) == 2.0
    assert second < first
