"""Any optimizer of `torch.optim`, with parameter groups and a scheduler where the user makes them.

`module:name` is an optimizer class, or a function that takes the phase's named parameters and returns an optimizer, or
an optimizer and a learning-rate scheduler. The optimizer's state is read from it after every update and put back before
the next, so it is committed with the parameters and survives the process that computed it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from paceline.errors import StrategyError, reason
from paceline.step.optimizers import Rule
from paceline.step.own_optimizer import make_optimizer
from paceline.strategy.correction import State
from paceline.strategy.layout import PhaseLayout

_STARTED = "updates"
SCHEDULED = ("lr", "momentum", "betas")
"""The constants of a parameter group that schedulers change."""


class TorchOptimizer:
    elementwise = False

    def __init__(self, rule: Rule, phase: PhaseLayout, dtype: torch.dtype) -> None:
        """The rule's schedule scales its rate, unless there is a scheduler."""
        self.rule, self.phase, self.called = rule, phase, f"optimizer {rule.optimizer}"
        self.flat, self.gradient = torch.zeros(phase.size, dtype=dtype), torch.zeros(phase.size, dtype=dtype)
        names = (name for name, _ in phase.tensors)
        self.parameters = dict(zip(names, map(nn.Parameter, self._split(self.flat)), strict=True))
        made = make_optimizer(rule.optimizer, self.parameters, rule.lr, "optimizer", StrategyError)
        self.optimizer, self.scheduler = made
        self.scheduled = [self._constants()]
        """The groups' constants by number of updates: workers that share this object have made different numbers."""
        self.described = self._dry_step()

    def _split(self, flat: Tensor) -> list[Tensor]:
        shapes = [torch.Size(shape) for _, shape in self.phase.tensors]
        pieces = flat.split([shape.numel() for shape in shapes])
        return [piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True)]

    def _dry_step(self) -> list[tuple[str, str, Tensor]]:
        """The tensors an optimizer keeps: parameter, name and value after a step with gradients of zero."""
        for parameter in self.parameters.values():
            parameter.grad = torch.zeros_like(parameter)
        self._step()
        found = []
        for name, parameter in self.parameters.items():
            for key, value in self.optimizer.state[parameter].items():
                if isinstance(value, Tensor):
                    found.append((name, key, value.detach().clone()))
                elif value is not None:
                    raise StrategyError(
                        f"{self.called} keeps {key} as {type(value).__name__}, not as a tensor: "
                        "it cannot be committed together with the parameters"
                    )
        self.optimizer.state.clear()
        self.flat.zero_()
        return found

    def _step(self) -> None:
        try:
            self.optimizer.step()
        except Exception as error:
            raise StrategyError(f"{self.called} failed: {reason(error)}") from error

    def initial_state(self) -> dict[str, Tensor]:
        state = {f"{name}/{key}": torch.zeros_like(value) for name, key, value in self.described}
        return {**state, _STARTED: torch.zeros((), dtype=torch.float64)}

    def update(
        self, old: Tensor, gradient: Tensor, new: Tensor, before: State, after: State, rate: float, room: Tensor
    ) -> None:
        updates = int(before[_STARTED].item())
        self.flat.copy_(old)
        self.gradient.copy_(gradient)
        for parameter, piece in zip(self.parameters.values(), self._split(self.gradient), strict=True):
            parameter.grad = piece
        self.optimizer.state.clear()
        if updates:
            for name, key, _ in self.described:
                self.optimizer.state[self.parameters[name]][key] = before[f"{name}/{key}"].to("cpu", copy=True)
        self._set_rate(updates, rate)
        self._step()
        for name, key, _ in self.described:
            after[f"{name}/{key}"].copy_(self.optimizer.state[self.parameters[name]][key])
        after[_STARTED].copy_(before[_STARTED] + 1)
        new.copy_(self.flat)

    def _set_rate(self, updates: int, rate: float) -> None:
        """A scheduler is a function of the number of updates; without one the workload's schedule scales all groups."""
        if self.scheduler is None:
            for group in self.optimizer.param_groups:
                group.setdefault("initial_lr", group["lr"])
                group["lr"] = group["initial_lr"] * rate / self.rule.lr
            return
        while len(self.scheduled) <= updates:
            self._put(self.scheduled[-1])  # most schedulers multiply what is there
            self.scheduler.step()
            self.scheduled.append(self._constants())
        self._put(self.scheduled[updates])

    def _constants(self) -> list[tuple[Any, ...]]:
        return [tuple(group.get(name) for name in SCHEDULED) for group in self.optimizer.param_groups]

    def _put(self, constants: list[tuple[Any, ...]]) -> None:
        for group, values in zip(self.optimizer.param_groups, constants, strict=True):
            group.update({name: value for name, value in zip(SCHEDULED, values, strict=True) if name in group})
