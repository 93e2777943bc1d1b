"""The rule by which the server turns payloads into updates: the workload's own, or one that the strategy names."""

from __future__ import annotations

import dataclasses
import math

from paceline.errors import StrategyError, nearest
from paceline.step.optimizers import Rule
from paceline.strategy.strategy import Strategy
from paceline.workload import OPTIMIZERS


def server_rule(strategy: Strategy, own: Rule) -> Rule:
    """For a phase whose own rule is `own`.

    Gradients are treated as in one process, with the rate's schedule and regularisation. What workers changed by
    local steps has both in it already, so it is applied at a constant rate, 1 unless the strategy says otherwise.
    """
    name, rate = parse_optimizer(strategy.server_optimizer)
    if strategy.exchange != "gradient":
        return Rule(name or "sgd", 1.0 if rate is None else rate)
    return dataclasses.replace(own, optimizer=name or own.optimizer, lr=own.lr if rate is None else rate)


def parse_optimizer(text: str) -> tuple[str, float | None]:
    """`NAME` or `NAME:RATE`; nothing is the workload's own."""
    name, colon, number = text.partition(":")
    if text and name not in OPTIMIZERS:
        raise StrategyError(f"server-optimizer {text!r} is unknown: {nearest(name, OPTIMIZERS)}")
    if not colon:
        return name, None
    try:
        rate = float(number)
    except ValueError:
        rate = math.nan
    if not (math.isfinite(rate) and rate > 0):
        raise StrategyError(f"server-optimizer {text!r} should be NAME:RATE with a rate above 0, as adagrad:0.5")
    return name, rate
