"""The cost of exchanging passes through the measured points, with a bend at the cache size."""

from __future__ import annotations

import pytest

from paceline.cost.exchange import ExchangeCost, protocol_of
from paceline.strategy.presets import find_strategy
from paceline.strategy.strategy import Strategy
from paceline.training import exchange_costs as made
from paceline.training.exchange_costs import StepTimes

POINTS = [(100, 10.0), (300, 14.0), (500, 24.0)]


@pytest.mark.parametrize(
    ("size", "extra_s"), [(100, 10.0), (200, 12.0), (300, 14.0), (400, 19.0), (500, 24.0), (700, 34.0)]
)
def test_the_cost_passes_through_the_points_and_extrapolates(size, extra_s):
    cost = ExchangeCost.fit("sync", 4, 2, POINTS)
    assert cost.step_s(1.0, size, cores=2) == pytest.approx(2.0 + extra_s)
    assert cost.step_s(1.0, size, cores=4) == pytest.approx(1.0 + extra_s)


def test_a_larger_network_is_never_cheaper():
    cost = ExchangeCost.fit("sync", 1, 2, [(100, 10.0), (300, 9.0), (500, 8.0)])
    assert cost.step_s(1.0, 100, 2) == cost.step_s(1.0, 10_000, 2) == pytest.approx(11.0)


def test_a_line_without_a_bend_is_straight():
    cost = ExchangeCost("sync", 1, fixed_s=1.0, byte_s=0.5, cores=2)
    assert cost.step_s(0.0, 8, 2) == 5.0


def test_the_cost_of_three_networks_is_recovered(monkeypatch):
    monkeypatch.setattr(made, "available_cores", lambda: 2)
    strategy = find_strategy("downpour")
    law = ExchangeCost(protocol_of(strategy), 4, 1e-4, 1e-9, 2, 300_000, 3e-9)
    networks = [
        StepTimes(size, alone_s, {(strategy, 4): law.step_s(alone_s, size, 2)})
        for size, alone_s in [(100_000, 1e-3), (300_000, 2e-3), (900_000, 4e-3)]
    ]
    (found,) = made.exchange_costs(networks)
    assert found.strategy == law.strategy
    for size in (50_000, 250_000, 300_000, 2_000_000):
        assert found.step_s(3e-3, size, 2) == pytest.approx(law.step_s(3e-3, size, 2))


def test_a_cost_belongs_to_a_protocol_not_to_a_name():
    assert protocol_of(find_strategy("towers")) == protocol_of(find_strategy("sync")) == "groups=1"
    assert protocol_of(find_strategy("downpour")) == "groups=none, local_step=true, overlap=true"
    own = Strategy("mine", groups=None, overlap=True, local_step=True, full_pass_per_worker=True, warm_start=5)
    assert protocol_of(own) == protocol_of(find_strategy("downpour"))
    assert protocol_of(find_strategy("compressed")) == "groups=none, exchange=topk:0.01"
