"""What counts as a difference between two settings that were repeated."""

from __future__ import annotations

import pytest

from paceline.results.noise import differs, unrepeated


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([1.0], [2.0, 2.1], None),
        ([1.0, 1.1, 1.2], [1.3, 1.4, 1.5], True),
        ([1.0, 1.1, 1.3], [1.2, 1.4, 1.5], False),
        ([1.0, 1.1], [1.3, 1.4], True),
        ([1.0, 1.2], [1.3, 1.4], False),  # with two repetitions, ranges are often disjoint by chance
    ],
)
def test_ranges_of_repetitions_decide(first, second, expected):
    assert differs(first, second) is expected
    assert differs(second, first) is expected


def test_a_comparison_says_that_its_noise_is_unknown():
    assert unrepeated((1.0,), (2.0,)) == " (one run each)"
    assert unrepeated((1.0, 1.1), (2.0, float("nan"))) == " (too few runs to judge the noise)"
    assert unrepeated((1.0, 1.1), (2.0, 2.1)) == ""
