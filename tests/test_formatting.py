"""Numbers as people say them."""

from __future__ import annotations

import math

import pytest

from paceline.formatting import (
    count,
    duration,
    glued,
    in_order,
    listed,
    number,
    percent,
    rate,
    signed_percent,
    times,
)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0 s"), (3.2e-7, "0.320 µs"), (1.28e-4, "128 µs"), (8.7e-3, "8.70 ms"), (0.5, "500 ms"),
        (4.5, "4.5 s"), (109.2, "109 s"), (600, "10.0 min"), (7200, "2.0 h"), (4e6, "1,111 h"),
        (math.nan, "–"), (math.inf, "–"),
    ],
)  # fmt: skip
def test_a_duration_has_the_unit_that_suits_it(seconds, said):
    assert duration(seconds) == said


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0, "0"), (7, "7"), (12345, "12,345"), (2.0, "2.000"), (97.5, "97.50"), (0.03125, "0.03125"),
        (-4.7619, "-4.762"), (1234.5678, "1,235"), (3e-9, "3e-09"), (1e20, "1e+20"), (math.nan, "–"), (math.inf, "–"),
    ],
)  # fmt: skip
def test_a_number_has_four_digits(value, said):
    assert number(value) == said


def test_rates_and_sizes():
    assert [rate(r) for r in (1705.4, 12.71, math.nan)] == ["1,705 samples/s", "12.71 samples/s", "– samples/s"]
    assert rate(3, "steps") == "3 steps/s"


def test_shares_and_ratios():
    assert (
        percent(0.9722) == "97.2 %"
        and signed_percent(-0.01) == "-1.0 %"
        and percent(0.5, 0) == "50 %"
        and percent(math.nan) == "–"
    )
    assert [times(ratio) for ratio in (0.5, 1.25, 7.96, 41.3, math.nan)] == [
        "0.50 times", "1.25 times", "8.0 times", "41 times", "– times",
    ]  # fmt: skip


def test_words_are_counted_and_listed():
    assert (count(1, "run"), count(2000, "run"), count(2, "process", "processes")) == (
        "1 run",
        "2,000 runs",
        "2 processes",
    )
    assert (listed([]), listed(["a"]), listed("ab"), listed("abc")) == ("", "a", "a and b", "a, b and c")
    assert listed(range(12), 3) == "0, 1, 2 and 9 more"


def test_numbers_are_in_order_of_size_before_words():
    assert in_order(["16", "2", "sync", "0.5", "nan", "2"]) == ["0.5", "2", "16", "nan", "sync"]


def test_a_figure_stays_with_its_unit():
    assert glued("92.22 % of 8 workers in 3.3 s, seed 3 each") == (
        "92.22\u00a0% of 8\u00a0workers in 3.3\u00a0s, seed 3 each"
    )
