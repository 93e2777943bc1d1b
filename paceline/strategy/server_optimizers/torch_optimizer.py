"""Any optimizer of `torch.optim` at the server, with parameter groups and a scheduler where the user makes them.

`module:name` is an optimizer class, or a function that takes the phase's named parameters and returns an optimizer, or
an optimizer and a learning-rate scheduler. The optimizer's state is read from it after every update and put back before
the next, so it is committed with the parameters and survives the process that computed it.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor, nn

from paceline.errors import StrategyError, reason
from paceline.step.optimizers import Rule
from paceline.step.own_optimizer import make_optimizer
from paceline.strategy.correction import State
from paceline.strategy.layout import PhaseLayout

_STARTED = "updates"


class TorchOptimizer:
    elementwise = False

    def __init__(self, text: str, phase: PhaseLayout, rule: Rule, rate: float, dtype: torch.dtype) -> None:
        """`rule` is the workload's, whose schedule scales `rate` unless there is a scheduler."""
        self.text, self.phase, self.given_rate, self.dtype = text, phase, rate, dtype
        self.rule = dataclasses.replace(rule, lr=rate)
        self.flat, self.gradient = torch.zeros(phase.size, dtype=dtype), torch.zeros(phase.size, dtype=dtype)
        self.parameters = {
            t.name: nn.Parameter(piece) for t, piece in zip(phase.tensors, self._split(self.flat), strict=True)
        }
        place = ":".join(text.split(":")[:2])
        self.optimizer, self.scheduler = make_optimizer(place, self.parameters, rate, "server-optimizer", StrategyError)
        self.scheduled = 0
        self.described = self._dry_step()

    def _split(self, flat: Tensor) -> list[Tensor]:
        pieces, first = [], 0
        for tensor in self.phase.tensors:
            count = int(torch.Size(tensor.shape).numel())
            pieces.append(flat[first : first + count].view(tensor.shape))
            first += count
        return pieces

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
                        f"server-optimizer {self.text} keeps {key} as {type(value).__name__}, not as a tensor: "
                        "it cannot be committed together with the parameters"
                    )
        self.optimizer.state.clear()
        self.flat.zero_()
        return found

    def _step(self) -> None:
        try:
            self.optimizer.step()
        except Exception as error:
            raise StrategyError(f"server-optimizer {self.text} failed: {reason(error)}") from error

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
                group["lr"] = group["initial_lr"] * rate / self.given_rate
            return
        while self.scheduled < updates:
            self.scheduler.step()
            self.scheduled += 1
