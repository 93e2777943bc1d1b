"""What a worker sends: between its copy of the model and an exchange, of the whole vector or of one fragment."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline.strategy.exchange import Exchange, Replica
from paceline.strategy.fragments import Fragments, encoded_size
from paceline.strategy.instructions import Compute
from paceline.strategy.strategy import Strategy


class PayloadEncoder:
    def __init__(self, exchange: Exchange, strategy: Strategy, replica: Replica, local: Tensor) -> None:
        """`local` is the worker's whole vector: its parameters, then its buffers."""
        self.exchange, self.replica, self.local = exchange, replica, local
        self.parameters = len(replica.parameters)
        self.fragments = Fragments.of(strategy, self.parameters)
        self.size = encoded_size(exchange, strategy, self.parameters)
        """Numbers of a payload without the buffers, which follow."""

    def encode(self, task: Compute, total: Tensor, out: Tensor) -> None:
        """Writes the payload of a task to `out`; `total` is the sum of its gradients, which may be there already."""
        replica, payload = self.replica, out[: self.size]
        if self.fragments is not None:
            replica = self.fragments.replica(replica, task.fragment)
            payload = payload[: self.exchange.payload_size(len(replica.parameters))]
        if not self.exchange.sums_gradients:
            self._encode(replica, payload)
        elif total.data_ptr() != out.data_ptr():
            payload.copy_(total)
        if len(self.local) > self.parameters:
            out[self.size :].copy_(self.local[self.parameters :])

    def _encode(self, replica: Replica, payload: Tensor) -> None:
        if payload.device == self.local.device:
            self.exchange.encode(replica, payload)
            return
        room = torch.empty(len(payload), dtype=payload.dtype, device=self.local.device)
        self.exchange.encode(replica, room)
        payload.copy_(room)
