"""A network's parameters as views into one flat buffer, so that an update or an exchange is one operation."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from paceline.step.layout import flattened_like, view_like


class FlatParameters:
    """Moves the values of `parameters` into `buffer`; the parameters stay usable as they were.

    `Module.to` and loading by assignment give parameters new memory; `bind` brings them back.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], buffer: Tensor | None = None) -> None:
        self.parameters = list(parameters)
        self.sizes = [p.numel() for p in self.parameters]
        first = self.parameters[0]
        self.buffer = torch.empty(sum(self.sizes), dtype=first.dtype, device=first.device) if buffer is None else buffer
        self.gradient = torch.zeros_like(self.buffer)
        self.views = self.split(self.buffer)
        self.bind()

    @staticmethod
    def possible(parameters: Sequence[nn.Parameter]) -> str | None:
        """Why these parameters cannot share one buffer, or None when they can."""
        if not parameters:
            return "there are no parameters to train"
        if len({p.dtype for p in parameters}) > 1 or len({p.device for p in parameters}) > 1:
            return "the parameters differ in type or device"
        if any(p.is_sparse or p.layout != torch.strided for p in parameters):
            return "a parameter is sparse"
        return None

    def split(self, flat: Tensor) -> list[Tensor]:
        """Views of `flat` in the parameters' shapes and memory layouts."""
        pieces = flat.split(self.sizes)
        return [view_like(piece, p) for piece, p in zip(pieces, self.parameters, strict=True)]

    def bound(self) -> bool:
        return all(p.data_ptr() == v.data_ptr() for p, v in zip(self.parameters, self.views, strict=True))

    @torch.no_grad()
    def bind(self) -> None:
        """Copies what the parameters hold into the buffer and makes them views of it."""
        for parameter, view in zip(self.parameters, self.views, strict=True):
            if parameter.data_ptr() != view.data_ptr():
                view.copy_(parameter.data)
                parameter.data = view

    def pieces(self, gradients: Sequence[Tensor | None]) -> list[Tensor]:
        """The gradients as flat tensors, each in the order of its parameter in memory; zeros for a missing one."""
        return [
            torch.zeros(p.numel(), dtype=p.dtype, device=p.device) if g is None else flattened_like(g, p)
            for g, p in zip(gradients, self.parameters, strict=True)
        ]

    def gather(self, gradients: Sequence[Tensor | None]) -> Tensor:
        """The gradients, joined into the flat one."""
        return torch.cat(self.pieces(gradients), out=self.gradient)
