"""Two exchanges in a row, such as `delta+int8`: the first makes a vector, the second compresses it."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from paceline.errors import StrategyError
from paceline.strategy.exchange import Exchange, Replica


class Composed(Exchange):
    """What local steps changed, compressed: for DiLoCo and local SGD over slow links."""

    def __init__(self, text: str, first: Exchange, second: Exchange) -> None:
        if not first.is_dense or first.fetch_last or first.state:
            raise StrategyError(f"exchange {text}: the part before + should be gradient or delta")
        if second.is_dense or second.local_optimizer:
            raise StrategyError(f"exchange {text}: the part after + should be a compression, for example delta+int8")
        self.first, self.second = first, second
        self.local_optimizer, self.keeps_fetched = first.local_optimizer, first.keeps_fetched
        self.fetch_first, self.weighted = first.fetch_first, first.weighted
        self.state = second.state

    def payload_size(self, parameters: int) -> int:
        return self.second.payload_size(parameters)

    def encode(self, replica: Replica, payload: Tensor) -> None:
        made = torch.empty_like(replica.parameters)
        self.first.encode(replica, made)
        self.second.encode(replace(replica, gradient=made), payload)

    def decode(self, payload: Tensor, gradient: Tensor) -> None:
        self.second.decode(payload, gradient)
