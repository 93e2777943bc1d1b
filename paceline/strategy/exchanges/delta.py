"""Parameter deltas: what local steps changed since the last fetch (local SGD, FedAvg, DiLoCo)."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline.strategy.exchange import Exchange, Replica


class Delta(Exchange):
    """The server gets fetched - local as its gradient: plain SGD with rate 1 averages the workers' parameters."""

    local_optimizer = True
    keeps_fetched = True
    fetch_first = True
    weighted = False

    def encode(self, replica: Replica, payload: Tensor) -> None:
        torch.sub(replica.fetched, replica.parameters, out=payload)
