"""Host and device as two queues, against cases that can be worked out by hand."""

from __future__ import annotations

import pytest

from paceline.cost.host_queue import QUEUE, iteration_s


def test_the_slower_of_host_and_device_determines_the_iteration():
    assert iteration_s([1.0] * 10, [3.0] * 10) == pytest.approx(30.0)
    assert iteration_s([3.0] * 10, [1.0] * 10) == pytest.approx(30.0)


def test_a_lead_of_the_host_hides_slow_launches():
    """First long kernels and quick launches, then short kernels and slow launches: the device never waits."""
    assert iteration_s([1.0] * 10 + [5.0] * 10, [10.0] * 10 + [1.0] * 10) == pytest.approx(110.0)


def test_without_work_ahead_the_device_waits_for_slow_launches():
    """The whole iteration takes the host as long as the device; it cannot be faster than either."""
    assert iteration_s([10.0] * 10 + [1.0] * 10, [1.0] * 10 + [10.0] * 10) == pytest.approx(110.0, rel=0.1)


def test_the_host_cannot_be_further_ahead_than_the_queue_is_long():
    """Every second iteration's launches would otherwise pile up; a full queue slows the host, not the device."""
    launches = QUEUE + 500
    assert iteration_s([1e-6] * launches, [1e-3] * launches) == pytest.approx(1e-3 * launches)


def test_an_iteration_without_operations_takes_no_time():
    assert iteration_s([], []) == 0.0
