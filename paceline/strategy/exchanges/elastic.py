"""Elastic averaging (Zhang, Choromanska, LeCun 2015): a worker and the centre are drawn towards each other."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline.strategy.exchange import Exchange, Replica


class Elastic(Exchange):
    """Each gives way by alpha / workers of the distance; workers keep parameters of their own."""

    local_optimizer = True
    keeps_fetched = True
    fetch_last = True
    weighted = False

    def __init__(self, alpha: float = 0.9) -> None:
        self.alpha = alpha

    def encode(self, replica: Replica, payload: Tensor) -> None:
        torch.sub(replica.fetched, replica.parameters, out=payload).mul_(self.alpha / replica.workers)
        replica.parameters.add_(payload)
