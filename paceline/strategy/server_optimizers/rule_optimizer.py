"""The workload's update rules at the server, written so that a small update is few operations and no copies."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline.step.optimizers import Rule, initial_state, update
from paceline.strategy.correction import State


class RuleOptimizer:
    elementwise = True

    def __init__(self, rule: Rule, size: int, dtype: torch.dtype) -> None:
        self.rule, self.size, self.dtype = rule, size, dtype
        self.names = tuple(initial_state(rule, torch.zeros(0)))
        self._rate = torch.zeros((), dtype=torch.float64 if dtype == torch.float64 else torch.float32)
        self._momentum = 0.0
        self._short = not rule.l1 and rule.optimizer in ("sgd", "momentum")
        if rule.optimizer == "momentum":
            self._momentum = rule.momentum

    def initial_state(self) -> dict[str, Tensor]:
        zero = torch.zeros(0, dtype=self.dtype)
        return {
            name: tensor.new_zeros(self.size) if tensor.dim() else tensor
            for name, tensor in initial_state(self.rule, zero).items()
        }

    def update(
        self, old: Tensor, gradient: Tensor, new: Tensor, before: State, after: State, rate: float, room: Tensor
    ) -> None:
        rule, room = self.rule, room[: len(gradient)]
        if self._short:  # the most frequent rules, in as few operations as there are
            if self._momentum:
                gradient = torch.add(gradient, before["velocity"], alpha=self._momentum, out=after["velocity"])
                if rule.l2:
                    gradient.add_(old, alpha=rule.l2)
            elif rule.l2:
                gradient = torch.add(gradient, old, alpha=rule.l2, out=room)
            torch.sub(old, gradient, alpha=rate, out=new)
            return
        if new is not old:
            new.copy_(old)
        state = {}
        for name in self.names:
            state[name] = after[name] if after[name] is before[name] else after[name].copy_(before[name])
        self._rate = self._rate.to(new.device).fill_(rate)
        update(rule, new, room.copy_(gradient), state, self._rate)
