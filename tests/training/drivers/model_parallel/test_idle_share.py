"""What a pipeline idles on this machine is what its schedule predicts; layers wait instead of computing, so that the
time of a pass does not depend on what else the machine does."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import paceline
from paceline.cost.piece_times import PieceTime
from paceline.simulation.pipeline_schedule import simulate_schedule
from paceline.training.drivers.model_parallel.messages import Ready
from paceline.training.drivers.model_parallel.stage_processes import StageProcesses

FORWARD_S, BACKWARD_S, STAGES, MICROBATCHES = 0.03, 0.06, 2, 6


class _Waiting(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, forward_s: float, backward_s: float) -> torch.Tensor:
        ctx.backward_s = backward_s
        time.sleep(forward_s)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:  # type: ignore[override]
        time.sleep(ctx.backward_s)
        return gradient, None, None


class Waits(nn.Module):
    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times
        self.linear = nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _Waiting.apply(self.linear(x), self.times * FORWARD_S, self.times * BACKWARD_S)  # type: ignore[no-any-return, no-untyped-call]


def waiting(slower: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), Waits(1), Waits(slower), nn.Linear(64, 10))


@pytest.mark.parametrize("slower", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_the_idle_share_is_the_predicted_one(slower: int) -> None:
    run = paceline.train(
        waiting(slower), data="digits:96", batch=48, epochs=2, pipeline=STAGES, microbatches=MICROBATCHES, cut="2",
        threads=1, device="cpu",
    )  # fmt: skip
    times = [PieceTime(FORWARD_S * n, BACKWARD_S * n) for n in (1, slower)]
    expected = simulate_schedule(times, MICROBATCHES, "1f1b").idle_share
    if slower == 1:
        assert expected == pytest.approx((STAGES - 1) / (MICROBATCHES + STAGES - 1))
    found = run.division
    assert found.idle_share == pytest.approx(expected, abs=0.05)
    assert found.predicted_idle_share == pytest.approx(expected, abs=0.05)
    assert not any(math.isnan(process.idle_share) for process in found.processes)


def test_hand_overs_are_part_of_the_predicted_idle_share(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = StageProcesses.start

    def slow(processes: StageProcesses) -> list[Ready]:
        """As if each hand-over had taken longer: stage 2 waits for four micro-batches, stage 1 for the last one."""
        found = answers(processes)
        return [
            replace(each, rehearsal=replace(each.rehearsal, step_s=each.rehearsal.step_s + 5 * FORWARD_S))
            for each in found
            if each.rehearsal is not None
        ]

    monkeypatch.setattr(StageProcesses, "start", slow)
    run = paceline.train(
        waiting(), data="digits:48", batch=48, epochs=1, pipeline=STAGES, microbatches=MICROBATCHES, cut="2", threads=1,
        device="cpu",
    )  # fmt: skip
    times = [PieceTime(FORWARD_S, BACKWARD_S)] * STAGES
    expected = simulate_schedule(times, MICROBATCHES, "1f1b", [FORWARD_S], receives_when_free=True).idle_share
    assert expected > simulate_schedule(times, MICROBATCHES, "1f1b").idle_share + 0.05
    assert run.division.predicted_idle_share == pytest.approx(expected, abs=0.05)
