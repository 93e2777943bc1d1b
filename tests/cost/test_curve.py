"""A curve fitted to trials of a known law recovers it, with a calibrated uncertainty."""

from __future__ import annotations

from itertools import pairwise
from math import log
from statistics import fmean, median

import numpy as np
import pytest

from paceline.cost.curve import CACHES, Curve, Roofline, Trial
from paceline.cost.families import FAMILIES
from paceline.cost.iteration import Z_90
from tests.cost.invented import Law

LAW = Law(fixed_s=5e-6, flops=2e11, bytes=3e10, noise=0.05)


def of(family: str, count: int, law: Law = LAW, seed: int = 0) -> list[Trial]:
    return law.trials(family, family, count, seed)


@pytest.mark.parametrize("family", ["matmul", "convolution", "add", "softmax"])
def test_a_known_law_is_recovered(family):
    curve = Curve(family, of(family, 80))
    held_out = of(family, 60, seed=1)
    estimates = curve.estimates([trial.sizes for trial in held_out])
    missed = [abs(g.seconds / LAW.seconds(family, t.sizes) - 1) for g, t in zip(estimates, held_out, strict=True)]
    assert median(missed) < 0.04 and sorted(missed)[int(0.9 * len(missed))] < 0.12


@pytest.mark.parametrize("noise", [0.02, 0.2])
def test_the_interval_covers_90_percent_of_unseen_trials(noise):
    law = Law(5e-6, 2e11, 3e10, noise)
    held = []
    for family in ("matmul", "add", "max_pool"):
        curve, held_out = Curve(family, of(family, 80, law)), of(family, 80, law, seed=2)
        for estimate, trial in zip(curve.estimates([t.sizes for t in held_out]), held_out, strict=True):
            held.append(abs(log(trial.seconds / estimate.seconds)) <= Z_90 * estimate.deviation)
    assert 0.8 <= fmean(held) <= 0.98


def test_deviations_from_the_roofline_are_learned_from_nearby_trials():
    """Products whose last size is odd take three times as long: nearby trials show it, a roofline does not."""

    def odd(trial: Trial) -> Trial:
        return Trial(trial.family, trial.sizes, trial.seconds * (3 if trial.sizes[3] % 2 else 1))

    trials, held_out = ([odd(t) for t in of("matmul", 150, seed=s)] for s in (0, 1))
    curve = Curve("matmul", trials)
    work = np.array([FAMILIES["matmul"].work_of(t.sizes) for t in held_out])
    rough = curve.roofline.seconds(work)
    estimates = curve.estimates([t.sizes for t in held_out])
    by_line = fmean(abs(log(s / t.seconds)) for s, t in zip(rough, held_out, strict=True))
    by_curve = fmean(abs(log(g.seconds / t.seconds)) for g, t in zip(estimates, held_out, strict=True))
    assert by_curve < 0.5 * by_line


def test_uncertainty_grows_far_from_all_trials():
    curve = Curve("add", of("add", 30))
    near, far = curve.estimates([(10_000,), (1 << 40,)])
    assert far.deviation > near.deviation
    assert far.seconds == pytest.approx(LAW.seconds("add", (1 << 40,)), rel=0.3)


def test_a_stored_shape_gives_the_same_estimates():
    trials, asked = of("matmul", 60), [t.sizes for t in of("matmul", 20, seed=3)]
    found = Curve("matmul", trials)
    again = Curve("matmul", trials, found.shape)
    assert again.shape == pytest.approx(found.shape) and len(found.shape) > 5
    for a, b in zip(found.estimates(asked), again.estimates(asked), strict=True):
        assert (a.seconds, a.deviation) == pytest.approx((b.seconds, b.deviation), rel=1e-9)


def test_a_shape_of_another_length_is_fitted_again():
    trials = of("add", 20)
    assert Curve("add", trials, (1.0, 2.0)).shape == pytest.approx(Curve("add", trials).shape)


def test_few_trials_give_a_roofline_with_high_uncertainty():
    curve = Curve("add", of("add", 4))
    (estimate,) = curve.estimates([(100_000,)])
    assert curve.shape == () and estimate.deviation >= 0.3
    assert estimate.seconds == pytest.approx(LAW.seconds("add", (100_000,)), rel=0.2)


def test_a_roofline_s_costs_are_never_below_zero():
    work = np.array([[1e6, 1e4], [1e7, 1e5], [1e8, 1e6]])
    for seconds in ([3e-6, 2e-6, 1e-6], [1e-6, 1e-6, 1e-6]):
        line = Roofline(work, np.array(seconds))
        assert (line.costs >= 0).all() and (line.seconds(work) > 0).all()
    exact = Roofline(work, 2e-6 + work[:, 0] / 1e11)
    assert exact.seconds(np.array([[5e7, 5e5]])) == pytest.approx(2e-6 + 5e7 / 1e11)


def test_memory_beyond_the_caches_is_slower():
    elements = 2.0 ** np.arange(6, 26)
    work = np.column_stack([np.zeros_like(elements), elements])
    seconds = 1e-6 + elements * 1e-10 + np.maximum(elements - CACHES[1], 0) * 9e-10
    far = np.array([[0.0, 2.0**27]])
    assert Roofline(work, seconds).seconds(far)[0] == pytest.approx(1e-9 * 2**27, rel=0.05)


def test_an_operation_takes_no_longer_than_a_larger_one():
    """Trials that become faster from 256 rows on, as where a library changes to another algorithm."""
    sizes = [(rows, width) for rows in (64, 128, 256, 512, 1024) for width in (64, 128, 256)]
    curve = Curve("layer_norm", [Trial("layer_norm", each, 5e-6 if each[0] < 256 else 2e-6) for each in sizes])
    found = [curve.estimates([(rows, 128)])[0].seconds for rows in (64, 128, 256, 512, 1024)]
    assert found[0] < 4e-6 and all(one < 1.02 * other for one, other in pairwise(found))
