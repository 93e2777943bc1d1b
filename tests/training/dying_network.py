"""A network that is exchanged in two buckets, and ends its process between them, once."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import torch
from torch import Tensor, nn

DIES_AT_STEP = 6


class DyingNetwork(nn.Module):
    """The first process that makes step `DIES_AT_STEP` removes the file `lives` and dies in its backward pass."""

    def __init__(self, lives: Path) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.lives, self.steps = lives, 0
        self.first, self.hidden, self.output = nn.Linear(64, 1024), nn.Linear(1024, 1024), nn.Linear(1024, 10)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x.flatten(1)).relu()
        return self.output(self.hidden(_Passing.apply(h, self)).relu())


class _Passing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, network):
        ctx.network = network
        return x.clone()

    @staticmethod
    def backward(ctx, slope):
        network = ctx.network
        network.steps += 1
        if network.steps == DIES_AT_STEP:
            try:
                network.lives.unlink()
            except FileNotFoundError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        return slope, None
