"""Times at a quarter, half and so on, from iterations that come many at a time."""

from __future__ import annotations

from paceline.training.measured_training import Quarters


def test_a_quarter_inside_several_iterations_is_in_proportion():
    quarters = Quarters(planned=8)
    quarters.add(3, 3.0)
    quarters.add(5, 10.0)
    assert quarters.reached_s == {0.25: 2.0, 0.5: 5.0, 0.75: 9.0, 1.0: 13.0}
    assert quarters.training_s == 13.0


def test_what_was_not_reached_is_missing():
    quarters = Quarters(planned=8)
    quarters.add(4, 1.0)
    assert quarters.reached_s == {0.25: 0.5, 0.5: 1.0}
