"""What in a strategy needs whole vectors, so that an update cannot be made slice by slice."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.strategy.server_optimizer import ServerOptimizer
from paceline.strategy.strategy import Strategy


def needs_whole_vectors(strategy: Strategy, optimizers: Sequence[ServerOptimizer]) -> str:
    """The name of it, for messages; empty if every number is updated by itself."""
    correction = strategy.make_correction
    if correction is not None and not correction.elementwise:
        return f"the correction {strategy.correction}"
    if any(optimizer.rule.clip_norm for optimizer in optimizers):
        return "`clip_norm`"
    whole = [optimizer.rule.optimizer for optimizer in optimizers if not optimizer.elementwise]
    return f"the optimizer {whole[0]}" if whole else ""
