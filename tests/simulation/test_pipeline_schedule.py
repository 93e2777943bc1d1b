"""A pipeline in virtual time: the bubble is exactly that of the formula, and passes keep their order."""

from __future__ import annotations

import itertools

import pytest

from paceline.cost.piece_times import PieceTime
from paceline.simulation.pipeline_schedule import simulate_schedule


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("stages", "microbatches"), [(1, 4), (2, 2), (2, 8), (3, 7), (4, 16), (8, 8), (5, 64)])
def test_the_bubble_of_equal_stages_is_exactly_that_of_the_formula(
    schedule: str, stages: int, microbatches: int
) -> None:
    found = simulate_schedule([PieceTime(1.0, 2.0)] * stages, microbatches, schedule)
    assert found.seconds == 3.0 * (microbatches + stages - 1)
    assert found.idle_shares == ((stages - 1) / (microbatches + stages - 1),) * stages


def test_a_slow_stage_sets_the_pace_and_is_never_idle_but_at_the_ends() -> None:
    found = simulate_schedule([PieceTime(1.0, 1.0), PieceTime(3.0, 3.0)], 10, "1f1b")
    assert found.seconds == 10 * 6.0 + 1.0 + 1.0  # the first forward and the last backward pass of the other
    assert found.idle_shares[1] == 2.0 / 62.0


def test_handing_over_takes_time_between_stages() -> None:
    without, with_them = (
        simulate_schedule([PieceTime(1.0, 2.0)] * 2, 4, "gpipe", [handover]) for handover in (0.0, 0.25)
    )
    assert with_them.seconds == without.seconds + 2 * 0.25


def test_a_receiver_that_computes_gets_nothing_meanwhile() -> None:
    times = [PieceTime(1.0, 1.0), PieceTime(3.0, 3.0)]
    found = simulate_schedule(times, 10, "1f1b", [0.5], receives_when_free=True)
    assert found.seconds == 1.0 + 10 * (0.5 + 6.0) + 0.5 + 1.0


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_steps_follow_each_other_with_what_each_stage_does_between_them(schedule: str) -> None:
    def next_step_s(*around_s: float) -> float:
        times = [PieceTime(1.0, 2.0)] * 2
        four, five = (simulate_schedule(times, 4, schedule, steps=n, around_s=around_s).seconds for n in (4, 5))
        return five - four

    assert next_step_s() == 15.0
    assert next_step_s(2.0, 2.0) == 17.0
    # The second stage ends before the first one, so it has three seconds for its own work.
    assert next_step_s(0.0, 3.0) == 15.0
    assert next_step_s(0.0, 4.0) == 16.0


def test_1f1b_keeps_the_activations_of_no_more_microbatches_than_stages_follow() -> None:
    times = [PieceTime(1.0, 2.0)] * 4
    assert simulate_schedule(times, 16, "1f1b").in_flight == (4, 3, 2, 1)
    assert simulate_schedule(times, 16, "gpipe").in_flight == (16,) * 4


def test_spans_of_a_stage_do_not_overlap() -> None:
    found = simulate_schedule([PieceTime(1.0, 2.0), PieceTime(2.0, 1.0), PieceTime(1.5, 3.0)], 6, "1f1b", [0.1, 0.2])
    for stage in range(3):
        spans = [span for span in found.trace.spans if span.who == f"stage {stage + 1}"]
        assert len(spans) == 12
        assert all(one.end_s <= other.start_s for one, other in itertools.pairwise(spans))
