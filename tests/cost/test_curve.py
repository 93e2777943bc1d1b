"""A curve fitted to trials of a known law finds it again, and is as sure of it as it should be."""

from __future__ import annotations

from math import log
from statistics import fmean, median

import numpy as np
import pytest

from paceline.cost.curve import CACHES, Curve, Roofline, Trial
from paceline.cost.families import FAMILIES
from paceline.cost.iteration import NINE_IN_TEN
from tests.cost.invented import Law

LAW = Law(fixed_s=5e-6, flops=2e11, bytes=3e10, noise=0.05)


def of(family: str, count: int, law: Law = LAW, seed: int = 0) -> list[Trial]:
    return law.trials(family, family, count, seed)


@pytest.mark.parametrize("family", ["matmul", "convolution", "add", "softmax"])
def test_a_known_law_is_found_again(family):
    curve = Curve(family, of(family, 80))
    held_out = of(family, 60, seed=1)
    guesses = curve.guesses([trial.sizes for trial in held_out])
    missed = [abs(g.seconds / LAW.seconds(family, t.sizes) - 1) for g, t in zip(guesses, held_out, strict=True)]
    assert median(missed) < 0.04 and sorted(missed)[int(0.9 * len(missed))] < 0.12


@pytest.mark.parametrize("noise", [0.02, 0.2])
def test_the_interval_holds_nine_in_ten_trials_that_it_did_not_see(noise):
    law = Law(5e-6, 2e11, 3e10, noise)
    held = []
    for family in ("matmul", "add", "max_pool"):
        curve, held_out = Curve(family, of(family, 80, law)), of(family, 80, law, seed=2)
        for guess, trial in zip(curve.guesses([t.sizes for t in held_out]), held_out, strict=True):
            held.append(abs(log(trial.seconds / guess.seconds)) <= NINE_IN_TEN * guess.deviation)
    assert 0.8 <= fmean(held) <= 0.98


def test_what_the_law_does_not_say_is_learnt_from_trials_near_by():
    """Products whose last size is odd take three times as long: a roofline cannot know, a trial near by does."""

    def odd(trial: Trial) -> Trial:
        return Trial(trial.family, trial.sizes, trial.seconds * (3 if trial.sizes[3] % 2 else 1))

    trials, held_out = ([odd(t) for t in of("matmul", 150, seed=s)] for s in (0, 1))
    curve = Curve("matmul", trials)
    work = np.array([FAMILIES["matmul"].work_of(t.sizes) for t in held_out])
    rough = curve.roofline.seconds(work)
    guesses = curve.guesses([t.sizes for t in held_out])
    by_line = median(abs(log(s / t.seconds)) for s, t in zip(rough, held_out, strict=True))
    by_curve = median(abs(log(g.seconds / t.seconds)) for g, t in zip(guesses, held_out, strict=True))
    assert by_curve < 0.5 * by_line


def test_far_from_all_trials_it_is_less_sure():
    curve = Curve("add", of("add", 30))
    near, far = curve.guesses([(10_000,), (1 << 40,)])
    assert far.deviation > near.deviation
    assert far.seconds == pytest.approx(LAW.seconds("add", (1 << 40,)), rel=0.3)


def test_a_shape_that_was_found_before_gives_the_same_guesses():
    trials, asked = of("matmul", 60), [t.sizes for t in of("matmul", 20, seed=3)]
    found = Curve("matmul", trials)
    again = Curve("matmul", trials, found.shape)
    assert again.shape == pytest.approx(found.shape) and len(found.shape) > 5
    for a, b in zip(found.guesses(asked), again.guesses(asked), strict=True):
        assert (a.seconds, a.deviation) == pytest.approx((b.seconds, b.deviation), rel=1e-9)


def test_a_shape_of_another_length_is_found_anew():
    trials = of("add", 20)
    assert Curve("add", trials, (1.0, 2.0)).shape == pytest.approx(Curve("add", trials).shape)


def test_few_trials_are_a_roofline_and_not_trusted():
    curve = Curve("add", of("add", 4))
    (guess,) = curve.guesses([(100_000,)])
    assert curve.shape == () and guess.deviation >= 0.3
    assert guess.seconds == pytest.approx(LAW.seconds("add", (100_000,)), rel=0.2)


def test_a_roofline_s_costs_are_never_below_zero():
    work = np.array([[1e6, 1e4], [1e7, 1e5], [1e8, 1e6]])
    for seconds in ([3e-6, 2e-6, 1e-6], [1e-6, 1e-6, 1e-6]):
        line = Roofline(work, np.array(seconds))
        assert (line.costs >= 0).all() and (line.seconds(work) > 0).all()
    exact = Roofline(work, 2e-6 + work[:, 0] / 1e11)
    assert exact.seconds(np.array([[5e7, 5e5]])) == pytest.approx(2e-6 + 5e7 / 1e11)


def test_a_roofline_knows_that_memory_beyond_the_caches_is_slower():
    elements = 2.0 ** np.arange(6, 26)
    work = np.column_stack([np.zeros_like(elements), elements])
    seconds = 1e-6 + elements * 1e-10 + np.maximum(elements - CACHES[1], 0) * 9e-10
    far = np.array([[0.0, 2.0**27]])
    assert Roofline(work, seconds).seconds(far)[0] == pytest.approx(1e-9 * 2**27, rel=0.05)
