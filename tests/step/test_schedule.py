"""The learning rate of an update, against the formulas written out."""

from __future__ import annotations

import math

import pytest

from paceline.learning_rate import parse_schedule
from paceline.step.schedule import learning_rate

BASE, PER_EPOCH, EPOCHS = 0.4, 10, 6


def rates(text: str) -> list[float]:
    schedule = parse_schedule(text)
    return [learning_rate(BASE, schedule, update, PER_EPOCH, EPOCHS) for update in range(PER_EPOCH * EPOCHS)]


def test_constant():
    assert rates("constant") == [BASE] * 60


def test_steps_fall_at_whole_multiples():
    assert rates("step:2:0.5") == pytest.approx([BASE] * 20 + [BASE / 2] * 20 + [BASE / 4] * 20)
    assert rates("step:1.5:0.1")[:31] == pytest.approx([BASE] * 15 + [BASE / 10] * 15 + [BASE / 100])


def test_cosine_falls_from_the_base_to_almost_nothing():
    found = rates("cosine")
    assert found == pytest.approx([BASE * (1 + math.cos(math.pi * u / 60)) / 2 for u in range(60)])
    assert found[0] == BASE and 0 < found[-1] < BASE / 1000


def test_a_warm_up_rises_in_equal_parts_to_the_base():
    found = rates("warm-up:2")
    assert found[:20] == pytest.approx([BASE * (u + 1) / 21 for u in range(20)])
    assert found[20:] == [BASE] * 40


def test_a_cosine_begins_where_the_warm_up_ends():
    found = rates("warm-up:2+cosine")
    assert found[20:] == pytest.approx([BASE * (1 + math.cos(math.pi * u / 40)) / 2 for u in range(40)])
    assert max(found) == found[20] == BASE


def test_a_run_that_goes_on_beyond_its_epochs_stays_at_the_end():
    assert learning_rate(BASE, parse_schedule("cosine"), 600, PER_EPOCH, EPOCHS) == 0.0
    assert learning_rate(BASE, parse_schedule("warm-up:9+cosine"), 59, PER_EPOCH, EPOCHS) < BASE
