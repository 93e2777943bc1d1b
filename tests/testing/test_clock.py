"""A fake clock stands still until somebody sleeps."""

from __future__ import annotations

import pytest

from paceline.testing import FakeClock


def test_time_passes_by_sleeping_and_not_otherwise():
    clock = FakeClock(10.0)
    assert [clock(), clock()] == [10.0, 10.0]
    clock.sleep(0.5)
    clock.sleep(0)
    assert clock() == 10.5


def test_it_does_not_go_back():
    with pytest.raises(ValueError, match="seconds must not be negative"):
        FakeClock().sleep(-1)
