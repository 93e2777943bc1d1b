"""On a GPU a block of iterations may continue into the next epoch, but not across a validation."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from paceline.measurement import measured_step
from paceline.measurement.block_lengths import BlockLengths
from paceline.measurement.gpu_session import GpuSession
from paceline.measurement.measured_step import MeasuredStep
from paceline.step.build import assemble, load_data
from paceline.step.make import make_step
from paceline.step.tally import Tally
from paceline.workload import resolve
from tests.measurement.fake_gpu import FakeGpu

BATCHES = 10


@pytest.fixture
def measured(monkeypatch):
    """A step on the CPU with a GPU's session."""
    FakeGpu(20_000, [8_000]).install(monkeypatch)
    settings = {"data": f"digits:{32 * BATCHES}", "batch": 32, "device": "cpu", "threads": 1}
    workload = resolve("mlp", settings)
    step, _ = make_step(assemble(workload, load_data(workload), torch.device("cpu")), "plain")
    made = MeasuredStep(step)
    made.session = GpuSession(nn.Identity(), torch.device("cpu"))
    yield made
    made.close()


@pytest.mark.parametrize(("pause_s", "goes_on"), [(0.0, True), (0.5, False)])
def test_a_pause_between_two_epochs_ends_a_block(pause_s, goes_on, measured, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(measured_step, "perf_counter", lambda: now[0])
    tally, begun = Tally(1), []
    begin = measured.session.begin
    monkeypatch.setattr(measured.session, "begin", lambda: begun.append(measured.session._done) or begin())
    for epoch in range(2):
        measured.begin(epoch)
        measured.advance(BATCHES // 2, tally)
        measured.advance(BATCHES // 2, tally)
        now[0] += pause_s
    assert len(begun) == (1 if goes_on else 2)


@pytest.mark.parametrize(("batches", "block", "longest"), [(1_000, 5, 50), (60, 5, 15), (7, 5, 5), (3, 3, 3)])
def test_blocks_fit_into_an_epoch(batches, block, longest):
    lengths = BlockLengths(stride=1, captured=False)
    lengths.fit_epoch(batches)
    assert lengths.default == block
    lengths.adapt_to(each_s=1e-4)
    assert lengths.default == longest
