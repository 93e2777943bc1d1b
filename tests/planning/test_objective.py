"""Parsing objectives, and the values they minimise."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.errors import InputError
from paceline.planning.objective import Objective, read_accuracy, read_budget, read_deadline


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("24h", 86400),
        ("90min", 5400),
        ("90m", 5400),
        ("1d12h", 129600),
        ("1.5h", 5400),
        ("30 s", 30),
        ("2d 6h", 194400),
    ],
)
def test_a_deadline_has_a_unit(text, seconds):
    assert read_deadline(text) == seconds


@pytest.mark.parametrize("text", ["24", "h", "", "24 hours!", "24x", "-3h", "h24", "0h", "999999d", "1h2", "tomorrow"])
def test_an_invalid_deadline_is_rejected(text):
    with pytest.raises(InputError, match="deadline"):
        read_deadline(text)


@pytest.mark.parametrize(("text", "share"), [("0.97", 0.97), ("97%", 0.97), ("97 %", 0.97), ("1", 1.0), ("100%", 1.0)])
def test_an_accuracy_is_a_share_or_a_percentage(text, share):
    assert read_accuracy(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["97", "0", "-0.1", "1.01", "101%", "most", "nan", "%"])
def test_an_accuracy_beyond_one_is_refused(text):
    with pytest.raises(InputError, match=r"e.g. 0.97 or 97%"):
        read_accuracy(text)


@pytest.mark.parametrize("text", ["-5", "much", "inf", "nan"])
def test_a_budget_is_not_negative(text):
    with pytest.raises(InputError, match="budget"):
        read_budget(text)


def test_epochs_and_accuracy_exclude_each_other():
    with pytest.raises(InputError, match="cannot be combined"):
        Objective(epochs=3, target_accuracy=0.9)
    with pytest.raises(InputError, match="cannot be combined"):
        Objective()


TIMES, MONEY = np.array([1.0, 2.0, 4.0]), np.array([9.0, 4.0, 3.0])


def best(objective: Objective) -> int:
    return int(np.argmin(objective.values(TIMES, MONEY)))


def test_a_deadline_asks_for_the_cheapest_in_time():
    assert best(Objective(epochs=1, deadline_s=5)) == 2
    assert best(Objective(epochs=1, deadline_s=3)) == 1
    assert best(Objective(epochs=1, deadline_s=1)) == 0


def test_a_budget_asks_for_the_fastest_within_it():
    assert best(Objective(epochs=1, budget=10)) == 0
    assert best(Objective(epochs=1, budget=5)) == 1


def test_both_ask_for_the_cheapest_in_time_within_the_budget():
    assert best(Objective(epochs=1, deadline_s=3, budget=5)) == 1
    assert np.isinf(Objective(epochs=1, deadline_s=1, budget=5).values(TIMES, MONEY)).all()


def test_neither_asks_for_the_least_time_times_money():
    assert best(Objective(epochs=1)) == 1


def test_the_nearest_is_the_least_too_long_or_too_expensive():
    assert int(np.argmin(Objective(epochs=1, deadline_s=0.5).distances(TIMES, MONEY))) == 0
    assert int(np.argmin(Objective(epochs=1, budget=1).distances(TIMES, MONEY))) == 2
    assert int(np.argmin(Objective(epochs=1, deadline_s=1, budget=2).distances(TIMES, MONEY))) == 1


def test_of_machines_that_cost_nothing_the_faster_is_better():
    free = np.zeros(3)
    for objective in (Objective(epochs=1), Objective(epochs=1, deadline_s=10)):
        assert int(np.argmin(objective.values(TIMES, free))) == 0
