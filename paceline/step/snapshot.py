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


class NetworkSnapshot:
    """A network before any step was made of it: also the memory that its parameters lie in is given back to them."""

    def __init__(self, network: nn.Module, generator: torch.Generator) -> None:
        self.network = network
        self.random = [(each, each.get_state()) for each in (generator, torch.default_generator)]
        self.parameters = [(p, p.data, p.detach().clone()) for p in network.parameters()]
        self.buffers = {name: (tensor, tensor.detach().clone()) for name, tensor in network.named_buffers()}

    @torch.no_grad()
    def restore(self) -> None:
        for parameter, memory, value in self.parameters:
            memory.copy_(value)
            parameter.data, parameter.grad = memory, None
        for name, (tensor, value) in self.buffers.items():
            tensor.copy_(value)
            owner, _, own_name = name.rpartition(".")
            setattr(self.network.get_submodule(owner), own_name, tensor)  # a forward pass may have replaced it
        for each, state in self.random:
            each.set_state(state)
