"""Every built-in exchange, with workers alone and in a group, keeps the contract on both drivers."""

from __future__ import annotations

import re

import pytest
import torch

from paceline.errors import StrategyError
from paceline.simulation.replay import replay_run
from paceline.strategy.exchange import Replica, _built_in, find_exchange
from paceline.strategy.strategy import Strategy
from tests.contract.drivers import ALL_DRIVERS, train
from tests.contract.small_training import start, trained, workload
from tests.contract.test_conservation import BATCHES

EVERY_THIRD = {"fetch_every": 3, "push_every": 3}
LOCAL = {"delta": EVERY_THIRD, "delta+int8": EVERY_THIRD, "elastic": {"fetch_every": 0, "push_every": 3}}
"""Exchanges whose workers have an optimizer of their own."""

EXCHANGES = (*_built_in(), "delta+int8")

ALONE = ("elastic", 1)
"""Workers with parameters of their own do not wait for each other."""


def strategy(exchange: str, groups: int | None) -> Strategy:
    optimizer = {"server_optimizer": "sgd:1"} if exchange in LOCAL else {}
    return Strategy(f"with {exchange}", groups=groups, exchange=exchange, **LOCAL.get(exchange, {}), **optimizer)


@pytest.mark.parametrize("driver", ALL_DRIVERS)
@pytest.mark.parametrize(
    ("exchange", "groups"), [(name, groups) for name in EXCHANGES for groups in (None, 1) if (name, groups) != ALONE]
)
def test_batches_are_conserved_and_the_run_is_repeated_bitwise(exchange, groups, driver, tmp_path):
    found = train(driver, workload(dropout=0.2), strategy(exchange, groups), 2, tmp_path / "run", record_events=True)
    ledger = found.distribution.ledger
    assert ledger.applied_by_epoch == (BATCHES,)
    assert ledger.dropped == ledger.refused == ledger.returned == 0
    assert not torch.equal(found.parameters, start())
    assert torch.equal(replay_run(tmp_path / "run"), found.parameters)


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_virtual_time_repeats_bitwise(exchange):
    first, second = (trained(strategy(exchange, None), 3, record=True) for _ in range(2))
    assert first.events == second.events and first.distribution == second.distribution
    assert torch.equal(first.parameters, second.parameters)


@pytest.mark.parametrize("exchange", ["topk:0.1", "int8"])
def test_what_a_payload_leaves_out_is_in_a_later_one(exchange):
    """Error feedback: payloads sent and what is still kept add up to the gradients that were computed."""
    made = find_exchange(exchange)
    size, generator = 2000, torch.Generator().manual_seed(0)
    replica = Replica(torch.zeros(size), torch.zeros(size), torch.zeros(size), 2, {"residual": torch.zeros(size)})
    payload, decoded = torch.zeros(made.payload_size(size)), torch.zeros(size)
    computed, sent = torch.zeros(size), torch.zeros(size)
    for _ in range(20):
        replica.gradient.copy_(torch.randn(size, generator=generator))
        computed += replica.gradient
        made.encode(replica, payload)
        made.decode(payload, decoded)
        sent += decoded
    assert torch.allclose(sent + replica.state["residual"], computed, atol=1e-4)
    assert replica.state["residual"].abs().max() > 0, "something is always left out"


def test_a_composed_exchange_pushes_what_local_steps_changed_in_the_size_of_its_compression():
    made, plain, compression = find_exchange("delta+int8"), find_exchange("delta"), find_exchange("int8")
    assert made.payload_size(2048) == compression.payload_size(2048) < plain.payload_size(2048) / 3
    generator = torch.Generator().manual_seed(0)
    now, fetched = torch.randn(2048, generator=generator), torch.randn(2048, generator=generator)
    replica = Replica(now.clone(), torch.zeros(2048), fetched.clone(), 2, {"residual": torch.zeros(2048)})
    payload, decoded = torch.zeros(made.payload_size(2048)), torch.zeros(2048)
    made.encode(replica, payload)
    made.decode(payload, decoded)
    torch.testing.assert_close(decoded, fetched - now, atol=0.03, rtol=0)
    torch.testing.assert_close(decoded + replica.state["residual"], fetched - now)
    assert torch.equal(replica.parameters, now) and torch.equal(replica.fetched, fetched)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("int8+delta", "before + should be gradient or delta"),
        ("delta+gradient", "after + should be a compression"),
        ("elastic+int8", "before +"),
        ("delta+", "unknown"),
        ("delta+int9", "int8"),
    ],
)
def test_exchanges_that_cannot_be_composed(text, message):
    with pytest.raises(StrategyError, match=re.escape(message)):
        find_exchange(text)
