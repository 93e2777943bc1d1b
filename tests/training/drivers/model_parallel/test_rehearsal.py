"""The idle share that is expected of a pipeline follows from what its processes measured in short steps."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

import paceline
from paceline.training.drivers.model_parallel.rehearsal import (
    FEWEST_STEPS,
    MOST_STEPS,
    Rehearsal,
    expected_idle_share,
    handover_s,
    rehearse,
    short_steps_of,
)
from paceline.training.drivers.model_parallel.stage_times import StageTimes

EQUAL = [Rehearsal(4, 1.0, 2.0, 0.0, 0.0, 15.0)] * 2
"""Two stages, whose short steps take as long as their five passes."""


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_without_anything_between_passes_it_is_the_bubble(schedule: str) -> None:
    assert handover_s(EQUAL, schedule) == pytest.approx(0.0, abs=1e-5)
    assert expected_idle_share(EQUAL, 8, schedule) == pytest.approx(1 / 9)


def test_loading_and_updates_of_both_stages_do_not_count() -> None:
    stages = [replace(stage, around_s=5.0, outside_s=5.0, step_s=20.0) for stage in EQUAL]
    assert expected_idle_share(stages, 8, "1f1b") == pytest.approx(1 / 9)


def test_a_stage_waits_for_the_update_of_the_other_and_for_the_division_of_a_batch() -> None:
    updates = [replace(EQUAL[0], around_s=7.0, outside_s=7.0, step_s=22.0), replace(EQUAL[1], step_s=22.0)]
    assert expected_idle_share(updates, 8, "1f1b") == pytest.approx((1 / 9 + (34 - 24) / 34) / 2)
    divides = [replace(EQUAL[0], around_s=7.0, step_s=22.0), replace(EQUAL[1], step_s=22.0)]
    assert expected_idle_share(divides, 8, "1f1b") == pytest.approx((34 - 24) / 34)


def test_what_is_left_of_a_short_step_is_handing_over() -> None:
    """With GPipe each of the four micro-batches is handed over twice, while the receiver waits."""
    stages = [replace(stage, step_s=15.0 + 8 * 0.25) for stage in EQUAL]
    assert handover_s(stages, "gpipe") == pytest.approx(0.25, rel=1e-5)
    assert expected_idle_share(stages, 4, "gpipe") == pytest.approx(1 - 12 / 17)
    assert expected_idle_share(stages, 8, "gpipe") > expected_idle_share(EQUAL, 8, "gpipe")


def test_faster_than_without_hand_overs_is_as_if_there_were_none() -> None:
    assert handover_s([replace(stage, step_s=14.0) for stage in EQUAL], "1f1b") == pytest.approx(0.0, abs=1e-5)


def test_a_process_times_its_passes_and_what_it_does_around_them(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(1000))
    module = "paceline.training.drivers.model_parallel"
    monkeypatch.setattr(f"{module}.stage_times.perf_counter", lambda: float(next(clock)))
    monkeypatch.setattr(f"{module}.rehearsal.perf_counter", lambda: float(next(clock)))
    times = StageTimes()

    def step() -> None:
        with times.span("load"):
            pass
        with times.waiting():
            next(clock)  # dividing the batch
            with times.span("forward"):
                next(clock)
            with times.span("backward"):
                next(clock)
                next(clock)
        with times.span("update"):
            pass

    # Of 14 readings per step, 2 are within the forward pass, 3 within the backward pass, 9 within all passes.
    first = rehearse(step, times, 1, 4, is_first=True)
    assert (first.forward_s, first.backward_s) == (2.0, 3.0)
    assert first.step_s == pytest.approx(first.outside_s + 9.0)
    assert first.around_s == pytest.approx(first.outside_s + 3.0)
    other = rehearse(step, times, 2, 4, is_first=False)
    assert (other.forward_s, other.around_s) == (1.0, other.outside_s)


def test_the_longer_a_short_step_the_fewer_there_are() -> None:
    assert short_steps_of(1e-6) == MOST_STEPS and short_steps_of(0.1) == 3 and short_steps_of(10.0) == FEWEST_STEPS


def test_a_network_that_is_not_cut_has_none() -> None:
    run = paceline.train("mlp", data="digits:64", batch=32, epochs=1, microbatches=2, threads=1, device="cpu")
    assert math.isnan(run.division.predicted_idle_share)
