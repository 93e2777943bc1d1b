"""A slow batch is not a hang; an actor that does not answer, or does nothing for very long, is."""

from __future__ import annotations

import pytest

from paceline.training.drivers.ray.hang_detection import Heartbeat
from paceline.training.settings import DriverSettings

LIMITS = DriverSettings(stopped_timeout=25, idle_timeout=120, busy_timeout=3600)


def test_one_that_does_not_answer_is_hung():
    one = Heartbeat(0.0)
    assert not one.should_ask(1.0) and one.should_ask(2.0)
    one.asked(2.0)
    assert not one.should_ask(10.0)
    assert one.verdict(27.0, LIMITS, computing=True) is None
    assert one.verdict(27.1, LIMITS, computing=True) == "did not answer for 25 s (stopped_timeout)"


@pytest.mark.parametrize(
    ("cpu_share", "hung_after_s", "limit"), [(0.0, 120, "idle_timeout"), (0.9, 3600, "busy_timeout")]
)
def test_one_that_finishes_nothing_is_hung_after_long(cpu_share, hung_after_s, limit):
    one = Heartbeat(0.0)
    one.answered(0.0, 0.0, 5)
    for now_s in range(10, hung_after_s + 1, 10):
        one.answered(now_s, cpu_share * now_s, 5)
        assert one.verdict(now_s, LIMITS, computing=True) is None
    one.answered(hung_after_s + 10, cpu_share * (hung_after_s + 10), 5)
    assert limit in one.verdict(hung_after_s + 10, LIMITS, computing=True)


def test_a_worker_without_a_task_may_wait_and_a_finished_step_counts():
    one = Heartbeat(0.0)
    one.answered(0.0, 0.0, 5)
    one.answered(500.0, 0.0, 5)
    assert one.verdict(500.0, LIMITS, computing=False) is None
    one.answered(600.0, 0.0, 5)
    assert one.verdict(600.0, LIMITS, computing=True) is None, "it has had this task for less than 120 s"
    one.answered(700.0, 0.0, 6)
    assert one.verdict(700.0, LIMITS, computing=True) is None


def test_an_actor_whose_steps_are_slow_has_longer():
    one = Heartbeat(0.0)
    for step in range(1, 6):
        one.answered(45.0 * step, 0.0, step)
    one.answered(225.0 + 449.0, 0.0, 5)
    assert one.verdict(225.0 + 449.0, LIMITS, computing=True) is None
    one.answered(225.0 + 451.0, 0.0, 5)
    assert "for 450 s (idle_timeout)" in one.verdict(225.0 + 451.0, LIMITS, computing=True)
