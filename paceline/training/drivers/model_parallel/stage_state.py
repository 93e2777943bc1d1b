"""What one process has of the whole network's state, by name: to be collected for a checkpoint, and to be loaded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from paceline.training.drivers.model_parallel.messages import Collect, WholeState


class StageState:
    def __init__(self, network: nn.Module, trained: Sequence[nn.Parameter]) -> None:
        """`network` is the whole one, whose layers of other stages are without values."""
        self.network = network
        names = {id(parameter): name for name, parameter in network.named_parameters()}
        self.trained = {names[id(parameter)]: parameter for parameter in trained}

    def _own(self) -> dict[str, Tensor]:
        return {name: tensor for name, tensor in self.network.state_dict().items() if tensor.device.type != "meta"}

    def collect(self, asked: Collect, optimizer: torch.optim.Optimizer) -> WholeState:
        tensors = {name: tensor.detach() for name, tensor in self._own().items()} if asked.tensors else {}
        states: dict[str, dict[str, Any]] = {}
        if asked.optimizer:
            for name, parameter in self.trained.items():
                if parameter in optimizer.state:
                    states[name] = dict(optimizer.state[parameter])
        return WholeState(tensors, states)

    @torch.no_grad()
    def load(self, whole: WholeState, optimizer: torch.optim.Optimizer) -> None:
        for name, tensor in self._own().items():
            tensor.copy_(whole.tensors[name])
        for name, parameter in self.trained.items():
            if name in whole.optimizer:
                optimizer.state[parameter] = {
                    key: value.clone() if isinstance(value, Tensor) else value
                    for key, value in whole.optimizer[name].items()
                }
