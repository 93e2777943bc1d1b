"""Sampled sizes are within limits, the same for the same seed, and similar to those of networks."""

from __future__ import annotations

import random

import pytest

from paceline.cost.calibrating import LIMITS
from paceline.cost.families import FAMILIES
from paceline.cost.shape_sampling import SMALLER, TRIALS, Limits, sample_shape

SMALL = Limits(1e6, 2.0**14)


@pytest.mark.parametrize("kind", TRIALS)
@pytest.mark.parametrize("limits", [LIMITS["cpu"], LIMITS["cuda"], SMALL], ids=["cpu", "cuda", "small"])
def test_sizes_are_within_limits(kind, limits):
    rng = random.Random(0)
    for _ in range(30):
        sizes = sample_shape(kind, rng, limits)
        flops, elements = FAMILIES[kind].work_of(sizes)
        assert len(sizes) == len(FAMILIES[kind].fields)
        assert flops <= limits.flops and elements <= limits.elements
        if kind == "matmul":
            assert sizes[4] in (0, 1, 2) and sizes[5] in (0, 1)
        elif kind in ("convolution", "attention"):
            assert min(sizes[:-1]) >= 1 and sizes[-1] in (0, 1)
        else:
            assert min(sizes) >= 1


@pytest.mark.parametrize("kind", TRIALS)
def test_the_same_seed_draws_the_same_sizes(kind):
    first, second, other = (
        [sample_shape(kind, rng, LIMITS["cpu"]) for _ in range(20)]
        for rng in (random.Random(5), random.Random(5), random.Random(6))
    )
    assert first == second != other


def test_convolutions_are_of_all_sorts():
    rng = random.Random(0)
    drawn = [
        dict(zip(FAMILIES["convolution"].fields, sample_shape("convolution", rng, LIMITS["cpu"]), strict=True))
        for _ in range(400)
    ]
    assert {1, 3, 5, 7} <= {each["r"] for each in drawn}
    assert {0, 1} == {each["bias"] for each in drawn}
    assert any(each["groups"] > 1 for each in drawn) and any(each["h"] > each["p"] for each in drawn)
    assert all(each["c"] % each["groups"] == 0 == each["k"] % each["groups"] for each in drawn)


def test_a_tenth_of_the_convolutions_read_samples():
    """Each network of images has one, and it takes a large share of a small network."""
    rng = random.Random(0)
    drawn = [sample_shape("convolution", rng, LIMITS["cpu"]) for _ in range(600)]
    assert 0.08 < sum(c in (1, 3) for _, c, *_ in drawn) / 600 < 0.4


def test_a_share_of_the_trials_is_small():
    limits = Limits(1e9, 2.0**24, smaller=0.7)
    rng = random.Random(0)
    drawn = [sample_shape("add", rng, limits)[0] for _ in range(400)]
    usual = [sample_shape("add", rng, Limits(1e9, 2.0**24))[0] for _ in range(400)]
    few = FAMILIES["add"].work_of((1,))[1]
    most = 2.0**24 / SMALLER / few
    assert sum(n <= most for n in drawn) > 1.15 * sum(n <= most for n in usual)
    assert max(drawn) > 2 * most


def test_sizes_span_those_of_networks():
    rng = random.Random(0)
    elements = [sample_shape("add", rng, LIMITS["cuda"])[0] for _ in range(300)]
    assert min(elements) < 100 and max(elements) > 1e7


def test_limits_that_nothing_fits_are_an_assertion_error():
    with pytest.raises(AssertionError, match="no sizes of attention"):
        sample_shape("attention", random.Random(0), Limits(1.0, 1.0))


def test_some_are_the_larger_of_two_draws():
    def typical(larger: float) -> float:
        rng = random.Random(0)
        return sorted(sample_shape("add", rng, Limits(1e12, 2.0**28, larger))[0] for _ in range(301))[150]

    assert typical(1.0) > 10 * typical(0.0)


def test_products_are_mostly_those_of_linear_layers_in_all_three_directions():
    rng = random.Random(0)
    drawn = [sample_shape("matmul", rng, LIMITS["cuda"]) for _ in range(600)]
    flops = [FAMILIES["matmul"].work_of(sizes)[0] for sizes in drawn]
    assert sum(each > 1e9 for each in flops) > 240  # large enough to keep a GPU busy
    weight_gradients = [sizes for sizes in drawn if sizes[4] == 2 and sizes[3] >= 4096 and sizes[1] <= 2048]
    assert len(weight_gradients) > 30  # few outputs and a long sum


def test_some_convolutions_cut_images_into_patches():
    rng = random.Random(0)
    drawn = [sample_shape("convolution", rng, LIMITS["cuda"]) for _ in range(400)]
    patches = [sizes for sizes in drawn if sizes[5] > 1 and sizes[2] == sizes[5] * sizes[7] and sizes[9] == 1]
    assert len(patches) >= 8 and {16} <= {sizes[5] for sizes in patches}
