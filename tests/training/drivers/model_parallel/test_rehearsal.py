"""The idle share that is expected of a pipeline follows from what its processes measured in a rehearsal."""

from __future__ import annotations

from dataclasses import replace

import pytest

import paceline
from paceline.training.drivers.model_parallel.rehearsal import Rehearsal, expected_idle_share, handovers_s

EQUAL = [Rehearsal(1.0, 2.0, 3.0, 0.0, 0.0), Rehearsal(1.0, 2.0, 0.0, 0.0, 0.0)]
"""Two stages; the first is away for the passes of the second alone."""


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_without_anything_between_passes_it_is_the_bubble(schedule: str) -> None:
    assert handovers_s(EQUAL) == [0.0]
    assert expected_idle_share(EQUAL, 6, schedule) == pytest.approx(1 / 7)


def test_loading_and_updates_of_both_stages_do_not_count() -> None:
    stages = [replace(stage, around_s=5.0, outside_s=5.0) for stage in EQUAL]
    assert expected_idle_share(stages, 6, "1f1b") == pytest.approx(1 / 7)


def test_a_stage_waits_for_the_update_of_the_other_and_for_the_division_of_a_batch() -> None:
    updates = [replace(EQUAL[0], around_s=7.0, outside_s=7.0), EQUAL[1]]
    assert expected_idle_share(updates, 6, "1f1b") == pytest.approx((1 / 7 + (28 - 18) / 28) / 2)
    divides = [replace(EQUAL[0], around_s=7.0), EQUAL[1]]
    assert expected_idle_share(divides, 6, "1f1b") == pytest.approx((28 - 18) / 28)


def test_a_hand_over_is_half_of_the_way_there_and_back() -> None:
    stages = [replace(EQUAL[0], away_s=9.0), replace(EQUAL[1], away_s=4.0), replace(EQUAL[1], away_s=0.5)]
    assert handovers_s(stages) == [1.0, 0.25]
    slower = [replace(EQUAL[0], away_s=3.5), EQUAL[1]]
    assert expected_idle_share(slower, 1, "gpipe") == pytest.approx(1 - 3 / 6.5)


def test_a_network_that_is_not_cut_has_none() -> None:
    run = paceline.train("mlp", data="digits:64", batch=32, epochs=1, microbatches=2, threads=1, device="cpu")
    assert run.division.predicted_idle_share != run.division.predicted_idle_share
