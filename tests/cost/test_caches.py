"""What operations find in the caches of a CPU: their code if a similar one ran shortly before, their data in a small
network."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paceline.cost.caches import WITHOUT_CODE, Costed, displaced, in_caches, slowed_without_code
from paceline.cost.calibration import TrialSet
from paceline.cost.curve import Trial
from paceline.cost.model import CostModel
from paceline.cost.operation import Operation
from tests.cost.invented import Law, calibration

MB = 1 << 20
COLD_S, CACHED_S, CODE_S = 20e-6, 5e-6, 9e-6


def costed(family: str = "relu", written: int = MB, **changed: float) -> Costed:
    operation = Operation(family, (1000,), "layer", "forward", family, written_bytes=written)
    return replace(Costed(operation, COLD_S, 0.1, CACHED_S, CODE_S), **changed)


def seconds(timed: list[Costed], cache_bytes: float) -> list[float]:
    return [each.seconds for each in in_caches(timed, cache_bytes)]


def test_half_has_left_after_as_much_as_the_caches_hold():
    assert displaced(0.0, MB) == 0.0 and displaced(MB, MB) == 0.5
    assert displaced(1e15, MB) == pytest.approx(1.0) and displaced(1.0, 0.0) == 1.0
    assert slowed_without_code(0.5, MB) == 1 + WITHOUT_CODE / 2 and slowed_without_code(1.0, 0.0) == 1.0


def test_large_networks_find_nothing_and_small_ones_everything():
    timed = [costed(), costed("tanh")]
    assert seconds(timed, 1e15) == pytest.approx([CACHED_S, CACHED_S])
    assert seconds(timed, 1.0) == pytest.approx([COLD_S, COLD_S], rel=1e-3)
    assert seconds(timed, 0.0) == [COLD_S, COLD_S]  # nothing is known of the caches
    between = seconds(timed, MB)
    assert all(CACHED_S < each < COLD_S for each in between)


def test_an_operation_that_follows_its_like_finds_its_code():
    rare, often = seconds([costed(), *(costed("tanh") for _ in range(9))], MB), seconds([costed()] * 10, MB)
    data_s = (COLD_S - CACHED_S - CODE_S) * displaced(10 * MB, MB)
    assert often == pytest.approx([CACHED_S + data_s] * 10)
    assert rare[0] == pytest.approx(CACHED_S + data_s + CODE_S * displaced(9 * MB, MB))
    # The first tanh comes after a relu, the others after one another.
    assert rare[1] == pytest.approx(CACHED_S + data_s + CODE_S * displaced(MB, MB)) and rare[2] == pytest.approx(
        often[0]
    )


def test_where_no_cached_time_is_known_the_other_counts():
    assert seconds([costed(cached_s=0.0, code_s=0.0)], MB) == [COLD_S]


LAW = Law()


def test_the_model_knows_both_times_of_an_operation():
    """Of trials that take 10 µs longer without their code, and twice as long without their data."""
    made = calibration(count=24)
    trials = tuple(
        replace(trial, seconds=2 * trial.seconds + 10e-6, cached_s=trial.seconds) for trial in made.sets[0].trials
    )
    made = replace(made, sets=(replace(made.sets[0], trials=trials),), cache_bytes=float(MB))
    sizes = (3000,)
    alone = LAW.seconds("add", sizes)
    asked = Operation("add", sizes, "layer", "forward", "add", written_bytes=1)
    (timed,) = CostModel(made, threads=1).timed([asked])
    assert timed.seconds == pytest.approx(2 * alone + 10e-6, rel=0.1)
    assert timed.cached_s == pytest.approx(alone, rel=0.1)
    assert timed.code_s + 1e-9 >= 10e-6 and timed.code_s <= timed.seconds - timed.cached_s
    (small,) = CostModel(made, threads=1).cost([asked])
    assert small.seconds == pytest.approx(timed.cached_s, rel=1e-3)
    (large,) = CostModel(made, threads=1).cost([replace(asked, written_bytes=1 << 40)])
    assert alone < small.seconds * 1.2 < large.seconds


def test_trials_without_cached_times_have_no_such_curve():
    timed = tuple(Trial("add", (1 << n,), 1e-6) for n in range(8))
    both = (*timed[1:], replace(timed[0], cached_s=5e-7))
    for trials in (timed, both):
        found = TrialSet("float32", 1, trials)
        assert found.cached_curve("add") is None
    assert TrialSet("float32", 1, timed).code_s("add") == 0.0
