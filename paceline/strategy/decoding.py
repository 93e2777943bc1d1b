"""From payloads as workers encoded them to gradients: of the whole vector, or of one fragment of it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from paceline.strategy.fragments import Fragments, encoded_size
from paceline.strategy.gradient_mean import GroupContribution
from paceline.strategy.layout import Layout
from paceline.strategy.strategy import Strategy


class Decoding:
    def __init__(self, strategy: Strategy, layout: Layout, device: torch.device | str) -> None:
        self.layout, self.device, self.exchange = layout, device, strategy.make_exchange
        self.fragments = Fragments.of(strategy, layout.parameters)
        self.encoded = encoded_size(self.exchange, strategy, layout.parameters)
        """Numbers of a payload before its buffers."""
        self.is_needed = not self.exchange.is_dense or self.fragments is not None
        """Whether a payload is not the gradient as it is."""
        self._decoded: list[Tensor] = []

    def gradient(self, payload: Tensor, out: Tensor, fragment: int = 0) -> Tensor:
        """The gradient in a payload; `out` is written only where that is not a part of the payload itself."""
        length = self.layout.parameters
        if self.fragments is not None:
            piece = self.fragments.piece(fragment)
            length = piece.stop - piece.start
        encoded = self.exchange.payload_size(length)
        part = payload if encoded == len(payload) else payload[:encoded]
        if self.exchange.is_dense:
            return part
        self.exchange.decode(part, out[:length])
        return out[:length]

    def all(self, given: Sequence[GroupContribution], fragment: int) -> list[GroupContribution]:
        """The same with whole vectors; of one fragment the rest of them has no meaning."""
        piece = slice(0, self.layout.parameters) if self.fragments is None else self.fragments.piece(fragment)
        number, decoded = 0, []
        for one in given:
            payloads = []
            for payload in one.payloads:
                if number == len(self._decoded):
                    room = torch.zeros(self.layout.size, dtype=self.layout.torch_dtype, device=self.device)
                    self._decoded.append(room)
                out, number = self._decoded[number], number + 1
                found = self.gradient(payload.values, out[piece], fragment)
                if self.exchange.is_dense:
                    out[piece] = found
                out[self.layout.parameters :] = payload.values[self.encoded :]
                payloads.append(payload._replace(values=out))
            decoded.append(one._replace(payloads=payloads))
        return decoded
