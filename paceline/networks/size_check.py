"""Rejects a network that does not fit in the free memory before it is built."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from paceline.errors import NetworkError
from paceline.free_memory import free_memory_bytes, memory_size

COPIES = 2
"""Parameters and gradients; optimizer state is not counted, because not every optimizer has any."""
_ALLOCATING = (torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn)


class RefuseLarge(TorchFunctionMode):
    """While active, sums up the sizes of created tensors and raises `NetworkError` before they exceed the memory."""

    def __init__(self, network: str, free_bytes: int | None = None) -> None:
        super().__init__()
        self.network = network
        self.free_bytes = free_memory_bytes() if free_bytes is None else free_bytes
        self.numbers = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _ALLOCATING:
            self.numbers += _numbers(args, kwargs)
            needed = 4 * COPIES * self.numbers
            if needed > self.free_bytes:
                raise NetworkError(
                    f"{self.network} is too large: training it needs at least {memory_size(needed)} of memory, "
                    f"{memory_size(self.free_bytes)} are free; use smaller layers"
                )
        return func(*args, **kwargs)


def _numbers(args: Any, kwargs: Any) -> int:
    size = kwargs.get("size", args)
    if len(size) and isinstance(size[0], tuple | list | torch.Size):
        size = size[0]
    return math.prod(s for s in size if isinstance(s, int))
