"""The server's update is PyTorch's, whatever the blocks, whoever owns the buffers."""

from __future__ import annotations

import pytest
import torch

from paceline.errors import StrategyError
from paceline.step.optimizers import Rule, torch_optimizer
from paceline.strategy import server as module
from paceline.strategy.refusals import is_finite
from paceline.strategy.server import Given, Payload, Server
from paceline.strategy.server_rule import parse_optimizer, server_rule
from paceline.strategy.strategy import Strategy, preset
from paceline.workload import OPTIMIZERS
from tests.strategy.flat_vectors import applied, layout, order, vector

ASYNC = preset("downpour")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Several blocks even of small vectors."""
    monkeypatch.setattr(module, "BLOCK", 64)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("double_buffered", [False, True])
def test_an_update_is_that_of_torch(optimizer, double_buffered):
    rule = Rule(optimizer, 0.05, l2=1e-3)
    where = layout(150, 37, rule=rule)
    server = Server(ASYNC, where, workers=1)
    current = vector(where.size, 1)
    own = [torch.nn.Parameter(current[:150].clone()), torch.nn.Parameter(current[150:].clone())]
    reference = torch_optimizer(rule, own)
    state = server.initial_state()
    for number in range(1, 6):
        g = vector(where.size, 100 + number)
        own[0].grad, own[1].grad = g[:150].clone(), g[150:].clone()
        reference.step()
        new = torch.empty_like(current) if double_buffered else current
        after = {name: torch.full_like(t, 9.0) for name, t in state.items()} if double_buffered else state
        given = Given([Payload(g, 8, 1)], None, {}, {})
        pushed = g.clone()
        server.apply(order(1, update=number), [given], current, new, state, after)
        assert torch.equal(g, pushed), "a payload must survive, the update may have to be repeated"
        current, state = new, after
    expected = torch.cat([p.detach() for p in own])
    torch.testing.assert_close(current, expected, rtol=2e-5, atol=1e-6)


def test_blocks_do_not_change_a_bit(monkeypatch):
    where, old = layout(1000, rule=Rule("adam", 0.01)), vector(1000, 1)
    in_blocks = applied(ASYNC, where, old, vector(1000, 2))
    monkeypatch.setattr(module, "BLOCK", 1 << 16)
    assert torch.equal(in_blocks, applied(ASYNC, where, old, vector(1000, 2)))


def test_a_group_s_gradients_count_by_their_samples():
    where, old = layout(100), vector(100, 1)
    g, h = vector(100, 2), vector(100, 3)
    server, new = Server(preset("sync"), where, 2), old.clone()
    given = Given([Payload(g, 32, 1), Payload(h, 8, 1)], None, {}, {})
    server.apply(order(2), [given], old, new, {}, {})
    torch.testing.assert_close(new, old - 0.1 * (0.8 * g + 0.2 * h))


def test_parameters_count_alike():
    where, old = layout(100), vector(100, 1)
    g, h = vector(100, 2), vector(100, 3)
    server, new = Server(preset("local-sgd", server_optimizer="sgd:1"), where, 2), old.clone()
    given = Given([Payload(g, 32, 4), Payload(h, 8, 1)], None, {}, {})
    server.apply(order(2), [given], old, new, {}, {})
    torch.testing.assert_close(new, old - 0.5 * (g + h))


def test_several_groups_are_averaged_after_their_correction():
    where, old = layout(100), vector(100, 1)
    gs = [vector(100, s) for s in (2, 3)]
    server, new = Server(preset("softsync", correction="staleness"), where, 2), old.clone()
    given = [Given([Payload(g, 4, 1)], None, {}, {}) for g in gs]
    server.apply(order(1, 1, staleness=2), given, old, new, {}, {})
    torch.testing.assert_close(new, old - 0.1 * (gs[0] / 2 + gs[1] / 2) / 2)


def test_buffers_are_averaged_in_a_group_and_the_latest_wins_between_groups():
    where, old = layout(10, buffers=4), vector(14, 1)
    payloads = [Payload(vector(14, s), 4, 1) for s in (2, 3, 4)]
    server, new = Server(Strategy("m", groups=2), where, 4), old.clone()
    given = [Given(payloads[:1], None, {}, {}), Given(payloads[1:], None, {}, {})]
    server.apply(order(1, 2), given, old, new, {}, {})
    torch.testing.assert_close(new[10:], (payloads[1].values[10:] + payloads[2].values[10:]) / 2)


def test_the_rate_follows_the_schedule():
    where = layout(10, rule=Rule("sgd", 0.8, schedule="step:1:0.5"), epochs=3, batches=10)
    old, g = torch.zeros(10), torch.ones(10)
    assert applied(ASYNC, where, old, g, epoch=0, closed=9)[0] == pytest.approx(-0.8)
    assert applied(ASYNC, where, old, g, epoch=2, closed=3)[0] == pytest.approx(-0.2)


def test_with_passes_of_their_own_an_epoch_lasts_as_long_as_one_pass():
    where = layout(10, rule=Rule("sgd", 0.8, schedule="cosine"), epochs=1, batches=10)
    strategy = preset("downpour", own_pass=True)
    server, new = Server(strategy, where, workers=4), torch.zeros(10)
    server.apply(order(1, closed=20), [Given([Payload(torch.ones(10), 1, 1)], None, {}, {})], new, new, {}, {})
    assert new[0] == pytest.approx(-0.4)


def test_the_outer_step_is_neither_scheduled_nor_regularised():
    rule = server_rule(preset("local-sgd"), Rule("adam", 0.01, "cosine", l2=0.1))
    assert rule == Rule("nesterov", 0.7)


def test_a_server_optimizer_takes_over_schedule_and_regularisation_of_gradients():
    rule = server_rule(preset("downpour", server_optimizer="adagrad:0.5"), Rule("adam", 0.01, "cosine", l2=0.1))
    assert rule == Rule("adagrad", 0.5, "cosine", l2=0.1)


@pytest.mark.parametrize("text", ["adagard", "adagrad:", "adagrad:x", "sgd:-1", "sgd:inf", "sgd:0"])
def test_a_wrong_server_optimizer_is_refused(text):
    with pytest.raises(StrategyError, match=text.split(":")[0]):
        parse_optimizer(text)


def test_payloads_that_are_no_numbers_are_told_apart():
    good = vector(1000, 1)
    assert is_finite(good)
    assert is_finite(torch.full((1000,), 3e38))  # their sum is none, but each is
    for bad in (float("nan"), float("inf"), -float("inf")):
        wrong = good.clone()
        wrong[777] = bad
        assert not is_finite(wrong)
