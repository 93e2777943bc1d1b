"""Delay compensation (Zheng et al. 2017, "Asynchronous stochastic gradient descent with delay compensation").

constant:  g + λ g⊙g⊙(w - w_fetched)
adaptive:  the same with λ / √(mean square of g), which keeps the second term in proportion
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline.strategy.correction import Correction, Late

DECAY = 0.95
EPSILON = 1e-7


def constant(strength: float) -> Correction:
    def correct(g: Tensor, late: Late) -> Tensor:
        drift = torch.sub(late.parameters, late.fetched).mul_(g)
        return torch.addcmul(g, drift, g, value=strength, out=drift)

    return Correction(correct, elementwise=True, late_only=True, passes=(9, 1))


def adaptive(strength: float) -> Correction:
    def correct(g: Tensor, late: Late) -> Tensor:
        square = torch.mul(g, g)
        mean_square = late.state["squares"].lerp_(square, 1 - DECAY)
        drift = torch.sub(late.parameters, late.fetched).mul_(square)
        scale = torch.add(mean_square, EPSILON, out=square).sqrt_()  # in memory that is in the cache
        return torch.addcdiv(g, drift, scale, value=strength, out=drift)

    return Correction(correct, ("squares",), elementwise=True, late_only=True, passes=(21, 3))
