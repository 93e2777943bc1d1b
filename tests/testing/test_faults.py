"""Faults are data: checked where they are made, and random ones follow from their seed."""

from __future__ import annotations

import pytest

from paceline.errors import StrategyError
from paceline.testing import Fault, random_kills


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"what": "explode"}, "a fault 'explode' is unknown"),
        ({"what": "slow"}, "slow is a fault of a worker"),
        ({"what": "kill", "at": -1}, "neither may be below 0"),
    ],
)
def test_what_is_no_fault_is_refused(given, message):
    with pytest.raises(StrategyError, match=message):
        Fault(**given)


def test_random_kills_are_as_many_as_asked_for_and_repeatable():
    kills = random_kills(workers=3, updates=100, of_workers=20, of_server=5, seed=1)
    assert [kill.worker is None for kill in kills].count(True) == 5
    assert {kill.worker for kill in kills} == {None, 0, 1, 2}
    assert all(0 <= kill.at < 100 and kill.what == "kill" for kill in kills)
    assert [kill.at for kill in kills] == sorted(kill.at for kill in kills)
    assert kills == random_kills(workers=3, updates=100, of_workers=20, of_server=5, seed=1)
    assert kills != random_kills(workers=3, updates=100, of_workers=20, of_server=5, seed=2)
