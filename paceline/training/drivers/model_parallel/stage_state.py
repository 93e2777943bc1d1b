"""What one process has of the whole network's state, by name: to be collected for a checkpoint, and to be loaded.

Tensors that are divided among processes are put together on the way out, and divided again on the way in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from paceline.training.drivers.model_parallel.messages import Collect, WholeState


class StageState:
    def __init__(
        self, network: nn.Module, trained: Sequence[nn.Parameter], *, first_copy: bool, first_part: bool
    ) -> None:
        """`network` is the whole one, whose layers of other stages are without values.

        All processes take part in putting tensors together. Only the first part of a stage sends them, and of
        parameters only that of the first copy.
        """
        self.network, self.first_copy, self.first_part = network, first_copy, first_part
        names = {id(parameter): name for name, parameter in network.named_parameters()}
        self.parameters = {*names.values()}
        self.trained = {names[id(parameter)]: parameter for parameter in trained}

    def _own(self) -> dict[str, Tensor]:
        return {name: tensor for name, tensor in self.network.state_dict().items() if tensor.device.type != "meta"}

    def collect(self, asked: Collect, optimizer: torch.optim.Optimizer) -> WholeState:
        tensors: dict[str, Tensor] = {}
        states: dict[str, dict[str, Any]] = {}
        if asked.tensors:
            for name, tensor in self._own().items():
                whole = joined(tensor.detach())
                if self.first_part and (self.first_copy or name not in self.parameters):
                    tensors[name] = whole
        if asked.optimizer:
            for name, parameter in self.trained.items():
                state = {key: joined(value) for key, value in optimizer.state.get(parameter, {}).items()}
                if state and self.first_part and self.first_copy:
                    states[name] = state
        return WholeState(tensors, states)

    @torch.no_grad()
    def load(self, whole: WholeState, optimizer: torch.optim.Optimizer) -> None:
        for name, tensor in self._own().items():
            tensor.copy_(divided_like(tensor, whole.tensors[name]))
        for name, parameter in self.trained.items():
            if name in whole.optimizer:
                optimizer.state[parameter] = {
                    key: divided_like(parameter, value).clone() if isinstance(value, Tensor) else value
                    for key, value in whole.optimizer[name].items()
                }


def joined(value: Any) -> Any:
    """The whole of a tensor that is divided; anything else as it is."""
    return value.full_tensor() if isinstance(value, DTensor) else value


def divided_like(one: Tensor, whole: Tensor) -> Tensor:
    """`whole` divided as `one` is, if they have the same shape."""
    if isinstance(one, DTensor) and one.shape == whole.shape:
        return distribute_tensor(whole, one.device_mesh, one.placements, src_data_rank=None)
    return whole
