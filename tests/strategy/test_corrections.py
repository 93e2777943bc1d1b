"""Corrections follow the published formulas, and the user's own is treated like ours."""

from __future__ import annotations

import pytest
import torch

from paceline.errors import Diverged, StrategyError
from paceline.strategy import server as module
from paceline.strategy.corrections import parse_correction
from paceline.strategy.server import Given, Payload, Server
from paceline.strategy.strategy import preset
from tests.strategy.flat_vectors import applied, layout, order, vector

G, W, BACKUP = vector(200, 1), vector(200, 2), vector(200, 3)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 64)


def after(correction: str, staleness: int = 3):
    return applied(
        preset("delay-compensated", correction=correction), layout(200), W, G, backup=BACKUP, staleness=staleness
    )


def test_constant_compensation():
    torch.testing.assert_close(after("constant:0.5"), W - 0.1 * (G + 0.5 * G * G * (W - BACKUP)))


def test_adaptive_compensation_keeps_a_mean_square_of_each_group():
    server = Server(preset("delay-compensated", correction="adaptive:2"), layout(200), workers=2)
    kept = [server.initial_kept(), server.initial_kept()]
    squares, w = [torch.zeros(200), torch.zeros(200)], W.clone()
    expected = W.clone()
    for number, group in enumerate((0, 0, 1, 0), 1):
        g = vector(200, 10 + number)
        squares[group] = 0.95 * squares[group] + 0.05 * g * g
        strength = 2 / (squares[group] + 1e-7).sqrt()
        expected = expected - 0.1 * (g + strength * g * g * (expected - BACKUP))
        given = Given([Payload(g, 1, 1)], BACKUP, kept[group], kept[group])
        server.apply(order(1, update=number, staleness=1), [given], w, w, {}, {})
    torch.testing.assert_close(w, expected)


def test_the_rate_is_divided_by_the_staleness_and_not_by_zero():
    for staleness in (0, 1, 4):
        torch.testing.assert_close(after("staleness", staleness), W - 0.1 * G / max(1, staleness))


def shrink(gradient, parameters, backup, staleness, state):
    """Looks at a norm: it must see the whole vector, however large the blocks are."""
    state["seen"].add_(1)
    return gradient / gradient.norm() / state["seen"]


shrink.state = ("seen",)


def wrong_shape(gradient, parameters, backup, staleness, state):
    return gradient[1:]


def fails(gradient, parameters, backup, staleness, state):
    raise RuntimeError("no")


def ends(gradient, parameters, backup, staleness, state):
    raise SystemExit(3)


def no_numbers(gradient, parameters, backup, staleness, state):
    return gradient / 0


not_a_function = 3


def test_one_of_the_user_s_own_sees_whole_vectors_and_keeps_its_state():
    place = f"{__name__}:shrink"
    torch.testing.assert_close(after(place), W - 0.1 * G / G.norm())
    assert Server(preset("delay-compensated", correction=place), layout(5), 1).kept_names == ("seen",)


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
    with pytest.raises(Diverged, match=f"{__name__}:no_numbers made a gradient that is not finite") as caught:
        after(f"{__name__}:no_numbers", staleness=3)
    assert "staleness 3" in str(caught.value) and "learning rate" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["none:1", "constant", "constant:", "constant:x", "adaptive:-1", "adaptive:nan", "staleness:2", "konstant"]
)
def test_a_wrong_correction_is_refused(text):
    with pytest.raises(StrategyError, match=text.split(":")[0]):
        parse_correction(text)


def test_the_user_s_own_must_be_a_function():
    with pytest.raises(StrategyError, match="is a int, not a function"):
        parse_correction(f"{__name__}:not_a_function")


def test_no_correction_is_none():
    assert parse_correction("none") is None
