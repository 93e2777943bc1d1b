"""Networks whose gradient takes a set time and hardly any arithmetic, so that a run tests links and not processors."""

from __future__ import annotations

import functools
import time
from typing import Any

import torch
from torch import Tensor, nn

COMPUTE_S = 0.2
FLOAT_BYTES = 4


class TimedNetwork(nn.Module):
    """Parameters of a size; a gradient is there `COMPUTE_S` after its step began. Validation does not wait."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(size_bytes // FLOAT_BYTES))
        self.gradient = torch.full((1,), 1e-6).expand(len(self.weight))

    def forward(self, x: Tensor) -> Tensor:
        return _Timed.apply(self.weight, self.gradient, x, self.training)  # type: ignore[no-any-return, no-untyped-call]


class _Timed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, gradient: Tensor, x: Tensor, waits: bool) -> Tensor:
        ctx.gradient, ctx.until_s = gradient, time.monotonic() + COMPUTE_S * waits
        return weight[:2].expand(len(x), 2).clone()

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> tuple[Tensor | None, ...]:
        time.sleep(max(0.0, ctx.until_s - time.monotonic()))
        return ctx.gradient, None, None, None


MEGABYTES = (1, 25, 250)
of_1_mb, of_25_mb, of_250_mb = (functools.partial(TimedNetwork, each * 1_000_000) for each in MEGABYTES)
