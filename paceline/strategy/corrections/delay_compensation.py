"""Delay compensation (Zheng et al. 2017, "Asynchronous stochastic gradient descent with delay compensation").

constant:  g + λ g⊙g⊙(w - w_fetched)
adaptive:  the same with λ / √(mean square of g), which keeps the second term in proportion
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline.strategy.correction import Correction, Function, Late, State

DECAY = 0.95
EPSILON = 1e-7


def constant(strength: float) -> Correction:
    def prepare(g: Tensor, before: State, after: State, room: tuple[Tensor, Tensor]) -> Tensor:
        return torch.mul(g, g, out=room[0])

    return Correction(_compensate(strength), elementwise=True, prepare=prepare, late_only=True, passes=(9, 1))


def adaptive(strength: float) -> Correction:
    def prepare(g: Tensor, before: State, after: State, room: tuple[Tensor, Tensor]) -> Tensor:
        square = torch.mul(g, g, out=room[0])
        mean_square = torch.lerp(before["squares"], square, 1 - DECAY, out=after["squares"])
        return square.mul_(torch.add(mean_square, EPSILON, out=room[1]).pow_(-0.5))  # faster than `rsqrt_` on a CPU

    compensate = _compensate(strength)
    return Correction(compensate, ("squares",), elementwise=True, prepare=prepare, late_only=True, passes=(21, 3))


def _compensate(strength: float) -> Function:
    def correct(g: Tensor, late: Late) -> Tensor:
        assert late.prepared is not None and late.room is not None
        between, result = late.room
        drift = torch.sub(late.parameters, late.fetched, out=between)
        return torch.addcmul(g, drift, late.prepared, value=strength, out=result)

    return correct
