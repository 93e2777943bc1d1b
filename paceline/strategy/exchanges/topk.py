"""Top-k sparsification with error feedback (Stich et al. 2018): the largest entries now, the rest later."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline.errors import StrategyError
from paceline.strategy.exchange import Exchange, Replica

_INDEX = {torch.float32: torch.int32, torch.float64: torch.int64}


class TopK(Exchange):
    """A payload holds k values and their k indices; what was not sent is added to the next gradient."""

    state: tuple[str, ...] = ("residual",)

    def __init__(self, share: float = 0.01) -> None:
        if not 0 < share <= 1:
            raise StrategyError(
                f"exchange topk:{share:g}: the share of entries to send should be above 0 and at most 1"
            )
        self.share = share

    def payload_size(self, parameters: int) -> int:
        return 2 * self.count(parameters)

    def count(self, parameters: int) -> int:
        return max(1, int(parameters * self.share))

    def encode(self, replica: Replica, payload: Tensor) -> None:
        residual = replica.state["residual"].add_(replica.gradient)
        send_largest(residual, self.count(len(residual)), payload)

    def decode(self, payload: Tensor, gradient: Tensor) -> None:
        values, indices = payload.chunk(2)
        gradient.zero_().index_copy_(0, indices.view(_INDEX[payload.dtype]).long(), values)


def send_largest(vector: Tensor, count: int, payload: Tensor) -> Tensor:
    """Moves the entries of largest magnitude from `vector` into the payload; their indices, in rising order."""
    indices = torch.topk(vector.abs(), count, sorted=False).indices.sort().values
    payload[:count] = vector[indices]
    payload[count:].view(_INDEX[payload.dtype]).copy_(indices)
    vector[indices] = 0.0
    return indices
