"""However many threads share an update: they make the same one, to the last bit."""

from __future__ import annotations

import pytest
import torch

from paceline.step.optimizers import Rule
from paceline.strategy import updater as module
from paceline.strategy.gradient_mean import GroupContribution, Payload
from paceline.strategy.layout import Layout
from paceline.strategy.presets import find_strategy
from paceline.strategy.strategy import Strategy
from paceline.strategy.updater import Updater
from paceline.workload import OPTIMIZERS
from tests.strategy.flat_vectors import layout, order, vector


def normed(gradient, late):
    return gradient / gradient.norm()


STRATEGIES = {
    "none": find_strategy("downpour"),
    "constant": find_strategy("delay-compensated", correction="constant:0.04"),
    "adaptive": find_strategy("delay-compensated", correction="adaptive:2"),
    "staleness": find_strategy("staleness-aware"),
    "a whole vector's": find_strategy("downpour", correction=f"{__name__}:normed"),
    "torch's optimizer": find_strategy("downpour", server_optimizer="torch.optim:RAdam:0.05"),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
@pytest.mark.parametrize("block", [128, 1 << 16])
def test_threads_make_the_update_of_one_bit_by_bit(optimizer, strategy, block, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", block)
    where = layout(1237, 411, rule=Rule(optimizer, 0.05, l2=1e-3, l1=1e-4), buffers=5)
    expected = after_updates(strategy, where, 1)
    for threads in (2, 3, 7):
        found = after_updates(strategy, where, threads)
        assert found.keys() == expected.keys()
        for name, tensor in expected.items():
            assert torch.equal(found[name], tensor), f"{name} with {threads} threads"


@pytest.mark.parametrize("exchange", ["gradient", "int8"])
def test_so_they_do_with_groups_of_several_payloads(exchange, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 128)
    where = layout(1237, 411, buffers=5)
    strategy = Strategy("mixed", groups=2, correction="adaptive:2", exchange=exchange)
    expected = after_updates(strategy, where, 1, (2, 3))
    found = after_updates(strategy, where, 3, (2, 3))
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_clipping_sees_the_whole_gradient_with_any_number_of_threads(monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 128)
    where = layout(1237, rule=Rule("sgd", 0.1, clip_norm=0.5))
    expected = after_updates(find_strategy("downpour"), where, 1)["parameters"]
    assert torch.equal(after_updates(find_strategy("downpour"), where, 4)["parameters"], expected)
    steps = [0.5 * g / g.norm() for g in (vector(where.size, 100 * number) for number in (1, 2, 3))]
    torch.testing.assert_close(expected, vector(where.size, 1) - 0.1 * sum(steps), rtol=1e-5, atol=1e-6)


def after_updates(
    strategy: Strategy, where: Layout, threads: int, groups: tuple[int, ...] = (1,)
) -> dict[str, torch.Tensor]:
    """Parameters and all state after three updates, each beside the last."""
    updater = Updater(strategy, where, 2, threads=threads)
    current, state = vector(where.size, 1), updater.initial_state()
    kept = [updater.initial_correction_state() for _ in groups]
    size = updater.encoded + where.buffers
    for number in range(1, 4):
        new = torch.full_like(current, 9.0)
        after = {name: torch.full_like(t, 9.0) for name, t in state.items()}
        kept_after = [{name: torch.full_like(t, 9.0) for name, t in of_group.items()} for of_group in kept]
        given, worker = [], 0
        for members, before, now in zip(groups, kept, kept_after, strict=True):
            payloads = [Payload(vector(size, 100 * number + worker + i), 8 + i, 1) for i in range(members)]
            given.append(GroupContribution(payloads, vector(where.size, 7), before, now))
            worker += members
        updater.apply(order(*groups, update=number, staleness=3), given, current, new, state, after)
        current, state, kept = new, after, kept_after
    named = {f"{name} of group {group}": t for group, table in enumerate(kept) for name, t in table.items()}
    return {"parameters": current, **state, **named}
