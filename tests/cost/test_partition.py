"""Stages are cut so that the slowest is as fast as it can be."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

from paceline.cost.partition import balanced_cut, stage_sums


def test_the_slowest_stage_is_as_fast_as_in_the_best_of_all_cuts() -> None:
    drawn = random.Random(5)
    for _ in range(40):
        costs = [drawn.choice((0.0, 1.0, 2.0, 5.0)) for _ in range(drawn.randint(1, 8))]
        stages = drawn.randint(1, len(costs))
        cut = balanced_cut(costs, stages)
        assert len(cut) == stages and cut[0] == 0 and sorted(set(cut)) == list(cut)
        cuts = combinations(range(1, len(costs)), stages - 1)
        assert max(stage_sums(costs, cut)) == min(max(stage_sums(costs, (0, *other))) for other in cuts)


def test_equal_layers_are_divided_equally() -> None:
    assert balanced_cut([1.0] * 12, 4) == (0, 3, 6, 9)


def test_fewer_layers_than_stages_are_refused() -> None:
    with pytest.raises(ValueError, match="2 layers cannot be 3 stages"):
        balanced_cut([1.0, 1.0], 3)
