"""With rare sampling windows most iterations are not timed: training is identical and every iteration is counted."""

from __future__ import annotations

import math

import pytest
import torch

from paceline.measurement.measured_step import MeasuredStep
from paceline.measurement.sampling_window import FULL_WINDOW_EVERY
from paceline.measurement.session import TIMED_BESIDE
from paceline.step.build import assemble, load_data
from paceline.step.make import make_step
from paceline.step.tally import Tally
from paceline.workload import resolve

WHOLE = 13  # batches of an epoch, and a smaller one
EPOCHS = 62


def made_step():
    settings = {"data": f"digits:{16 * WHOLE + 5}", "batch": 16, "device": "cpu", "threads": 1}
    workload = resolve("mlp", settings)
    return make_step(assemble(workload, load_data(workload), torch.device("cpu")), "flat")[0]


def trained(step, chunk) -> tuple[list[torch.Tensor], list[float]]:
    losses = []
    for epoch in range(EPOCHS):
        tally, left = Tally(1), WHOLE + 1
        step.begin(epoch)
        while left:
            now = min(left, chunk)
            step.advance(now, tally)
            left -= now
        losses.append(tally.read().loss)
    return [p.detach().clone() for p in step.parts.network.parameters()], losses


@pytest.mark.parametrize("chunk", [1, 5, 100])
def test_training_is_identical_and_every_iteration_is_counted(chunk, monkeypatch):
    monkeypatch.setattr("paceline.measurement.session.MAX_OVERHEAD", math.inf)
    plain, losses = trained(made_step(), chunk)
    step = MeasuredStep(made_step())
    step.session.every, step.session.warm_up, step.keep_every = FULL_WINDOW_EVERY, 5, 50
    step.session.densest = FULL_WINDOW_EVERY
    parameters, measured_losses = trained(step, chunk)
    step.close()
    assert all(torch.equal(a, b) for a, b in zip(plain, parameters, strict=True)) and losses == measured_losses
    session = step.session
    assert session.number == WHOLE * EPOCHS
    recorded = sorted(sample.number for sample in [*session.samples, *session.coarse])
    windows = [number for number in recorded if number - 1 not in recorded]
    assert len(windows) >= 3 and recorded == [first + i for first in windows for i in range(8)]
    noticed = {number for number, _, was in session.walls if not was}
    assert len(noticed) < 0.25 * session.number
    assert session.untouched >= (0.5 * session.number if chunk == 100 else len(noticed))  # also those not noted singly
    for first in windows:
        assert set(range(first - 3 - TIMED_BESIDE, first - 3)) <= noticed
    scores = step.scores()
    assert len(scores) > len(windows) and set(scores) <= {number for number, _, _ in session.walls} | set(range(5))
