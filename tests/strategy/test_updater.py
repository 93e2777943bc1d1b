"""The server's update is PyTorch's, whatever the blocks, whoever owns the buffers."""

from __future__ import annotations

import pytest
import torch

from paceline.errors import StrategyError
from paceline.step.optimizers import Rule, torch_optimizer
from paceline.strategy import updater as module
from paceline.strategy.exchange import Replica, find_exchange
from paceline.strategy.finite import is_finite
from paceline.strategy.gradient_mean import GroupContribution, Payload
from paceline.strategy.presets import find_strategy
from paceline.strategy.server_optimizer import check_optimizer, server_optimizer
from paceline.strategy.server_optimizers.rule_optimizer import RuleOptimizer
from paceline.strategy.strategy import Strategy
from paceline.strategy.updater import Updater
from paceline.workload import OPTIMIZERS
from tests.strategy.flat_vectors import applied, layout, order, vector

ASYNC = find_strategy("downpour")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Several blocks even of small vectors."""
    monkeypatch.setattr(module, "BLOCK", 64)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("double_buffered", [False, True])
def test_an_update_is_that_of_torch(optimizer, double_buffered):
    rule = Rule(optimizer, 0.05, l2=1e-3)
    where = layout(150, 37, rule=rule)
    updater = Updater(ASYNC, where, workers=1)
    current = vector(where.size, 1)
    own = [torch.nn.Parameter(current[:150].clone()), torch.nn.Parameter(current[150:].clone())]
    reference = torch_optimizer(rule, own)
    state = updater.initial_state()
    for number in range(1, 6):
        g = vector(where.size, 100 + number)
        own[0].grad, own[1].grad = g[:150].clone(), g[150:].clone()
        reference.step()
        new = torch.empty_like(current) if double_buffered else current
        after = {name: torch.full_like(t, 9.0) for name, t in state.items()} if double_buffered else state
        given = GroupContribution([Payload(g, 8, 1)], None, {}, {})
        pushed = g.clone()
        updater.apply(order(1, update=number), [given], current, new, state, after)
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
    updater, new = Updater(find_strategy("sync"), where, 2), old.clone()
    given = GroupContribution([Payload(g, 32, 1), Payload(h, 8, 1)], None, {}, {})
    updater.apply(order(2), [given], old, new, {}, {})
    torch.testing.assert_close(new, old - 0.1 * (0.8 * g + 0.2 * h))


def test_parameters_count_alike():
    where, old = layout(100), vector(100, 1)
    g, h = vector(100, 2), vector(100, 3)
    updater, new = Updater(find_strategy("local-sgd"), where, 2), old.clone()
    given = GroupContribution([Payload(g, 32, 4), Payload(h, 8, 1)], None, {}, {})
    updater.apply(order(2), [given], old, new, {}, {})
    torch.testing.assert_close(new, old - 0.5 * (g + h))


def test_several_groups_are_averaged_after_their_correction():
    where, old = layout(100), vector(100, 1)
    gs = [vector(100, s) for s in (2, 3)]
    updater, new = Updater(find_strategy("softsync", correction="staleness"), where, 2), old.clone()
    given = [GroupContribution([Payload(g, 4, 1)], None, {}, {}) for g in gs]
    updater.apply(order(1, 1, staleness=2), given, old, new, {}, {})
    torch.testing.assert_close(new, old - 0.1 * (gs[0] / 2 + gs[1] / 2) / 2)


def test_buffers_are_averaged_in_a_group_and_the_latest_wins_between_groups():
    where, old = layout(10, buffers=4), vector(14, 1)
    payloads = [Payload(vector(14, s), 4, 1) for s in (2, 3, 4)]
    updater, new = Updater(Strategy("m", groups=2), where, 4), old.clone()
    given = [GroupContribution(payloads[:1], None, {}, {}), GroupContribution(payloads[1:], None, {}, {})]
    updater.apply(order(1, 2), given, old, new, {}, {})
    torch.testing.assert_close(new[10:], (payloads[1].values[10:] + payloads[2].values[10:]) / 2)


def test_the_rate_follows_the_schedule():
    where = layout(10, rule=Rule("sgd", 0.8, schedule="step:1:0.5"), epochs=3, batches=10)
    old, g = torch.zeros(10), torch.ones(10)
    assert applied(ASYNC, where, old, g, epoch=0, closed=9)[0] == pytest.approx(-0.8)
    assert applied(ASYNC, where, old, g, epoch=2, closed=3)[0] == pytest.approx(-0.2)


def test_with_passes_of_their_own_an_epoch_lasts_as_long_as_one_pass():
    where = layout(10, rule=Rule("sgd", 0.8, schedule="cosine"), epochs=1, batches=10)
    strategy = find_strategy("downpour", full_pass_per_worker=True)
    updater, new = Updater(strategy, where, workers=4), torch.zeros(10)
    updater.apply(
        order(1, closed=20), [GroupContribution([Payload(torch.ones(10), 1, 1)], None, {}, {})], new, new, {}, {}
    )
    assert new[0] == pytest.approx(-0.4)


def rule_of(strategy: Strategy, own: Rule) -> Rule | None:
    return server_optimizer(strategy, layout(10, rule=own).phases[0], torch.float32).rule


def test_the_outer_step_is_neither_scheduled_nor_regularised():
    assert rule_of(find_strategy("diloco"), Rule("adam", 0.01, "cosine", l2=0.1)) == Rule("nesterov", 0.7)
    assert rule_of(find_strategy("local-sgd"), Rule("adam", 0.01, "cosine", l2=0.1)) == Rule("sgd", 1.0)


def test_a_server_optimizer_takes_over_schedule_and_regularisation_of_gradients():
    rule = rule_of(find_strategy("downpour", server_optimizer="adagrad:0.5"), Rule("adam", 0.01, "cosine", l2=0.1))
    assert rule == Rule("adagrad", 0.5, "cosine", l2=0.1)


@pytest.mark.parametrize("text", ["adagard", "adagrad:", "adagrad:x", "sgd:-1", "sgd:inf", "sgd:0"])
def test_a_wrong_server_optimizer_is_refused(text):
    with pytest.raises(StrategyError, match=text.split(":")[0]):
        check_optimizer(text)


def test_non_finite_payloads_are_told_apart():
    good = vector(1000, 1)
    assert is_finite(good)
    assert is_finite(torch.full((1000,), 3e38))  # their sum is none, but each is
    for bad in (float("nan"), float("inf"), -float("inf")):
        wrong = good.clone()
        wrong[777] = bad
        assert not is_finite(wrong)


def test_any_optimizer_of_torch_can_be_the_server_s():
    where, old = layout(150), vector(150, 1)
    strategy = find_strategy("downpour", server_optimizer="torch.optim:RAdam:0.05")
    updater, new = Updater(strategy, where, 1), old.clone()
    own = torch.nn.Parameter(old.clone())
    reference, state = torch.optim.RAdam([own], lr=0.05), updater.initial_state()
    for number in range(1, 8):
        g = vector(150, 100 + number)
        own.grad = g.clone()
        reference.step()
        updater.apply(
            order(1, update=number), [GroupContribution([Payload(g, 8, 1)], None, {}, {})], new, new, state, state
        )
    torch.testing.assert_close(new, own.detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("exchange", ["topk:0.1", "int8", "momentum-topk:0.1"])
def test_encoded_payloads_are_decoded_before_they_are_averaged(exchange):
    where, old = layout(300), vector(300, 1)
    strategy = find_strategy("sync", exchange=exchange)
    kind = strategy.make_exchange
    replicas = [Replica(old.clone(), vector(300, s), old, 2, {n: torch.zeros(300) for n in kind.state}) for s in (2, 3)]
    payloads, decoded = [], []
    for replica in replicas:
        payloads.append(torch.zeros(kind.payload_size(300)))
        kind.encode(replica, payloads[-1])
        decoded.append(torch.zeros(300))
        kind.decode(payloads[-1], decoded[-1])
    updater, new = Updater(strategy, where, 2), old.clone()
    given = GroupContribution([Payload(p, 8, 1) for p in payloads], None, {}, {})
    updater.apply(order(2), [given], old, new, {}, {})
    torch.testing.assert_close(new, old - 0.1 * (decoded[0] + decoded[1]) / 2)


@pytest.mark.parametrize("exchange", ["topk:0.1", "int8"])
def test_what_an_encoding_leaves_out_is_sent_later(exchange):
    kind = find_exchange(exchange)
    gradient, received = vector(300, 5), torch.zeros(300)
    replica = Replica(torch.zeros(300), gradient, torch.zeros(300), 1, {n: torch.zeros(300) for n in kind.state})
    payload, decoded = torch.zeros(kind.payload_size(300)), torch.zeros(300)
    for _ in range(4):
        kind.encode(replica, payload)
        kind.decode(payload, decoded)
        received += decoded
    torch.testing.assert_close(received + replica.state["residual"], 4 * gradient, rtol=1e-4, atol=1e-5)
    assert kind.payload_size(100_000) < 100_000


def test_an_optimizer_keeps_nothing_from_inference_mode():
    """On another device than the CPU, whose copies of a number are new tensors; the meta device is such a one."""
    optimizer = RuleOptimizer(Rule("adam", lr=0.1), 3, torch.float32)
    for inference in (True, False):
        vectors = [torch.zeros(3, device="meta") for _ in range(2)]
        state = {name: tensor.to("meta") for name, tensor in optimizer.initial_state().items()}
        with torch.inference_mode(inference):
            optimizer.update(vectors[0], vectors[1], vectors[0], state, state, 0.1, room=vectors[1])
