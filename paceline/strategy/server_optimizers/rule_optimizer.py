"""The workload's update rules: the same kernels as in one process, in place or beside the version there is."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline.step.optimizers import Rule, fused_update, has_fused_kernel, initial_state, update
from paceline.strategy.correction import State


class RuleOptimizer:
    elementwise = True

    def __init__(self, rule: Rule, size: int, dtype: torch.dtype) -> None:
        self.rule, self.size, self.dtype = rule, size, dtype
        self.names = tuple(initial_state(rule, torch.zeros(0)))
        self._exact = torch.float64 if dtype == torch.float64 else torch.float32
        self._fused: bool | None = None

    def initial_state(self) -> dict[str, Tensor]:
        zero = torch.zeros(0, dtype=self.dtype)
        return {
            name: tensor.new_zeros(self.size) if tensor.dim() else tensor
            for name, tensor in initial_state(self.rule, zero).items()
        }

    def update(
        self, old: Tensor, gradient: Tensor, new: Tensor, before: State, after: State, rate: float, room: Tensor
    ) -> None:
        if new is not old:
            new.copy_(old)
        state = {name: after[name] for name in self.names}
        if after is not before:
            for name, tensor in state.items():
                if tensor is not before[name]:
                    tensor.copy_(before[name])
        if self._fused is None:
            self._fused = has_fused_kernel(self.rule, new)
        if self._fused:
            fused_update(self.rule, [new], [gradient], [*state.values()], rate)
            return
        lr = torch.full((), rate, dtype=self._exact, device=new.device)
        overwritten = gradient if room is gradient else room[: len(gradient)].copy_(gradient)
        update(self.rule, new, overwritten, state, lr)
