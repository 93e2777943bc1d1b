"""The optimizer that turns payloads into updates: the workload's own rule, another rule, or any of `torch.optim`.

Workers that update their own copy of the parameters use the same objects.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Protocol

import torch
from torch import Tensor

from paceline.errors import StrategyError, nearest
from paceline.step.optimizers import Rule
from paceline.strategy.correction import State
from paceline.strategy.layout import PhaseLayout
from paceline.strategy.strategy import Strategy
from paceline.workload import OPTIMIZERS


class ServerOptimizer(Protocol):
    """The optimizer of one phase. The caller keeps its state, to commit it together with the parameters."""

    @property
    def elementwise(self) -> bool:
        """Whether it may be given piece after piece of the vectors."""
        ...

    @property
    def rule(self) -> Rule:
        """The rule that gives its rate, schedule and clipping."""
        ...

    def initial_state(self) -> dict[str, Tensor]:
        """Flat vectors of the phase's size, and scalars without a dimension."""
        ...

    def update(
        self, old: Tensor, gradient: Tensor, new: Tensor, before: State, after: State, rate: float, room: Tensor
    ) -> None:
        """Writes the new parameters and the state after the update.

        `old` and `new` may be one tensor, and so may the two states. `gradient` is not changed; `room` is memory that
        may be, at least as long: the gradient itself, if its caller has no more use for it.
        """
        ...


def server_optimizer(strategy: Strategy, phase: PhaseLayout, dtype: torch.dtype) -> ServerOptimizer:
    """The one that a strategy names, for a phase.

    Gradients are treated as in one process, with the rate's schedule and regularisation. What workers changed with
    an optimizer of their own has both in it already, so it is applied at a constant rate of 1 unless it says another.
    """
    check_optimizer(strategy.server_optimizer)
    name, rate = _parse(strategy.server_optimizer)
    own = Rule("sgd", 1.0, epochs=phase.rule.epochs) if strategy.make_exchange.local_optimizer else phase.rule
    rule = dataclasses.replace(own, optimizer=name or own.optimizer, lr=own.lr if rate is None else rate)
    return optimizer_of(rule, phase, dtype)


def optimizer_of(rule: Rule, phase: PhaseLayout, dtype: torch.dtype) -> ServerOptimizer:
    """The optimizer that a rule names, built in or the user's; workers that update their own copy have it too."""
    from paceline.strategy.server_optimizers.rule_optimizer import RuleOptimizer
    from paceline.strategy.server_optimizers.torch_optimizer import TorchOptimizer

    return TorchOptimizer(rule, phase, dtype) if ":" in rule.optimizer else RuleOptimizer(rule, phase.size, dtype)


def check_optimizer(text: str) -> None:
    """Refuses a server optimizer that is none, before anything is loaded."""
    name, rate = _parse(text)
    if text and ":" not in name and name not in OPTIMIZERS:
        raise StrategyError(f"server-optimizer {text!r} is unknown: {nearest(name, OPTIMIZERS, or_custom=True)}")
    if rate is not None and not (math.isfinite(rate) and rate > 0):
        raise StrategyError(f"server-optimizer {text!r} should be NAME:RATE with a rate above 0, e.g. adagrad:0.5")


def is_built_in(text: str) -> bool:
    """Whether a server optimizer is a rule, which treats every number by itself, and not the user's."""
    return ":" not in _parse(text)[0]


def _parse(text: str) -> tuple[str, float | None]:
    """`NAME`, `NAME:RATE`, `module:name` or `module:name:RATE`: the name and the rate, which is NaN if it is none."""
    name, colon, rest = text.partition(":")
    if colon and name not in OPTIMIZERS and _number(rest.partition(":")[0]) is None:
        attribute, colon, rest = rest.partition(":")
        name = f"{name}:{attribute}"
    rate = _number(rest)
    return name, math.nan if colon and rate is None else rate


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
