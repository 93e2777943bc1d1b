"""Everything a trial step changes, kept aside so that it can be undone."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from paceline.step.flat import FlatStep


class StepSnapshot:
    def __init__(self, network: nn.Module, step: FlatStep, generator: torch.Generator) -> None:
        self.generator = generator
        self.random = generator.get_state()
        tensors = [*network.parameters(), *network.buffers()]
        for phase in step.phases:
            tensors += [phase.flat.buffer, phase.lr, *phase.state.values()]
        self.kept: list[tuple[Tensor, Tensor]] = [(t, t.detach().clone()) for t in tensors]

    @torch.no_grad()
    def restore(self) -> None:
        for tensor, value in self.kept:
            tensor.copy_(value)
        self.generator.set_state(self.random)
