"""Corrections follow the published formulas, and a custom one is treated like them."""

from __future__ import annotations

import pytest
import torch

from paceline.errors import Diverged, StrategyError
from paceline.strategy import updater as module
from paceline.strategy.correction import find_correction
from paceline.strategy.gradient_mean import GroupContribution, Payload
from paceline.strategy.presets import find_strategy
from paceline.strategy.updater import Updater
from tests.strategy.flat_vectors import applied, layout, order, vector

G, W, FETCHED = vector(200, 1), vector(200, 2), vector(200, 3)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 64)


def after(correction: str, staleness: int = 3):
    return applied(
        find_strategy("delay-compensated", correction=correction),
        layout(200),
        W,
        G,
        fetched=FETCHED,
        staleness=staleness,
    )


def test_constant_compensation():
    torch.testing.assert_close(after("constant:0.5"), W - 0.1 * (G + 0.5 * G * G * (W - FETCHED)))


def test_adaptive_compensation_keeps_a_mean_square_of_each_group():
    updater = Updater(find_strategy("delay-compensated", correction="adaptive:2"), layout(200), workers=2)
    kept = [updater.initial_correction_state(), updater.initial_correction_state()]
    squares, w = [torch.zeros(200), torch.zeros(200)], W.clone()
    expected = W.clone()
    for number, group in enumerate((0, 0, 1, 0), 1):
        g = vector(200, 10 + number)
        squares[group] = 0.95 * squares[group] + 0.05 * g * g
        strength = 2 / (squares[group] + 1e-7).sqrt()
        expected = expected - 0.1 * (g + strength * g * g * (expected - FETCHED))
        given = GroupContribution([Payload(g, 1, 1)], FETCHED, kept[group], kept[group])
        updater.apply(order(1, update=number, staleness=1), [given], w, w, {}, {})
    torch.testing.assert_close(w, expected)


def test_the_rate_is_divided_by_the_staleness_and_not_by_zero():
    for staleness in (0, 1, 4):
        torch.testing.assert_close(after("staleness", staleness), W - 0.1 * G / max(1, staleness))


def shrink(gradient, late):
    """Looks at a norm: it must see the whole vector, however large the blocks are."""
    late.state["seen"].add_(1)
    return gradient / gradient.norm() / late.state["seen"]


shrink.state = ("seen",)


def wrong_shape(gradient, late):
    return gradient[1:]


def fails(gradient, late):
    raise RuntimeError("no")


def ends(gradient, late):
    raise SystemExit(3)


def not_finite(gradient, late):
    return gradient / 0


not_a_function = 3


def test_one_of_the_user_s_own_sees_whole_vectors_and_keeps_its_state():
    place = f"{__name__}:shrink"
    torch.testing.assert_close(after(place), W - 0.1 * G / G.norm())
    assert Updater(find_strategy("delay-compensated", correction=place), layout(5), 1).correction_state_names == (
        "seen",
    )


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("wrong_shape", r"returned \(199,\)"),
        ("fails", "failed: RuntimeError: no"),
        ("ends", r"ends the program \(exit 3\)"),
    ],
)
def test_a_mistake_in_the_user_s_own_names_it(name, words):
    with pytest.raises(StrategyError, match=f"{__name__}:{name} {words}"):
        after(f"{__name__}:{name}")


def test_what_is_no_number_is_not_blamed_on_the_learning_rate_when_the_user_s_own_made_it():
    with pytest.raises(Diverged, match=f"{__name__}:not_finite made a non-finite gradient") as caught:
        after(f"{__name__}:not_finite", staleness=3)
    assert "staleness 3" in str(caught.value) and "learning rate" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["none:1", "constant", "constant:", "constant:x", "adaptive:-1", "adaptive:nan", "staleness:2", "konstant"]
)
def test_a_wrong_correction_is_refused(text):
    with pytest.raises(StrategyError, match=text.split(":")[0]):
        find_correction(text)


def test_the_user_s_own_must_be_a_function():
    with pytest.raises(StrategyError, match="is an int, not a function"):
        find_correction(f"{__name__}:not_a_function")


def test_no_correction_is_none():
    assert find_correction("none") is None


def test_a_correction_is_told_whose_payload_it_is_and_what_the_rate_is():
    _told.clear()
    after(f"{__name__}:told", staleness=5)
    (late,) = _told
    assert (late.staleness, late.worker, late.step, late.rate) == (5, 0, 1, pytest.approx(0.1))
    assert torch.equal(late.parameters, W) and torch.equal(late.fetched, FETCHED)


_told = []


def told(gradient, late):
    _told.append(late._replace(parameters=late.parameters.clone(), fetched=late.fetched.clone()))
    return gradient


def shared_mean(gradient, late):
    """Keeps a mean of all workers' gradients at the server."""
    late.server_state["mean"].lerp_(gradient, 0.5)
    return late.server_state["mean"].clone()


shared_mean.server_state = ("mean",)


def test_state_at_the_server_is_shared_by_all_groups():
    updater = Updater(find_strategy("downpour", correction=f"{__name__}:shared_mean"), layout(200), workers=2)
    state, w, mean, expected = updater.initial_state(), W.clone(), torch.zeros(200), W.clone()
    assert list(state) == ["correction.mean"]
    for number in range(1, 4):
        g = vector(200, 20 + number)
        mean = mean + 0.5 * (g - mean)
        expected = expected - 0.1 * mean
        given = GroupContribution([Payload(g, 1, 1)], FETCHED, {}, {})
        updater.apply(order(1, update=number), [given], w, w, state, state)
    torch.testing.assert_close(w, expected)


def wrong_state(gradient, late):
    return gradient


wrong_state.state = "seen"


def test_names_of_state_should_be_a_list():
    with pytest.raises(StrategyError, match=r"wrong_state: its attribute state should not be 'seen'"):
        find_correction(f"{__name__}:wrong_state")
