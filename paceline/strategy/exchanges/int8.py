"""8-bit gradients: blocks of numbers are scaled to whole numbers from -127 to 127, with error feedback.

Block-wise absolute-maximum quantisation as in Dettmers 2016, "8-bit approximations for parallelism in deep learning".
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from paceline.strategy.exchange import Exchange, Replica

BLOCK = 1024


class Int8(Exchange):
    """A payload is one scale per block and then one byte per number, padded to whole numbers."""

    state: tuple[str, ...] = ("residual",)

    def payload_size(self, parameters: int) -> int:
        blocks = -(-parameters // BLOCK)
        return blocks + blocks * BLOCK // 4

    def encode(self, replica: Replica, payload: Tensor) -> None:
        residual = replica.state["residual"].add_(replica.gradient)
        blocks = _blocks(residual)
        scale = blocks.abs().amax(1).div_(127.0)
        whole = blocks.div(scale.clamp(min=torch.finfo(scale.dtype).tiny).unsqueeze(1)).round_()
        payload[: len(scale)] = scale
        _bytes(payload, len(scale)).copy_(whole.flatten())
        residual.sub_((whole * scale.unsqueeze(1)).flatten()[: len(residual)])

    def decode(self, payload: Tensor, gradient: Tensor) -> None:
        count = -(-len(gradient) // BLOCK)
        whole = _bytes(payload, count).view(count, BLOCK)
        gradient.copy_((whole * payload[:count].unsqueeze(1)).flatten()[: len(gradient)])


def _blocks(vector: Tensor) -> Tensor:
    return functional.pad(vector, (0, -len(vector) % BLOCK)).view(-1, BLOCK)


def _bytes(payload: Tensor, blocks: int) -> Tensor:
    """The whole numbers; with float64 twice the room is there and half of it stays empty."""
    return payload[blocks:].view(torch.int8)[: blocks * BLOCK]
