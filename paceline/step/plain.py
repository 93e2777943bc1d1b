"""The plain step: what people write by hand, with `torch.optim`. The reference for all others."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.utils import clip_grad_norm_

from paceline.step.loss_scaling import scaler_of
from paceline.step.optimizers import torch_optimizer
from paceline.step.own_optimizer import OwnOptimizer
from paceline.step.phase import Batch, Outcome, Phase
from paceline.step.step import Parts, Step, reported


class PlainStep(Step):
    kind = "plain"

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        names = {id(parameter): name for name, parameter in parts.network.named_parameters()}
        self.optimizers = [_optimizer(phase, names) for phase in parts.phases]

    def take(self, batch: Batch) -> Outcome:
        each = zip(self.parts.phases, self.optimizers, strict=True)
        return reported([self._phase(p, o, batch) for p, o in each if p.rule.trains_in(self.epoch)])

    def _phase(self, phase: Phase, optimizer: torch.optim.Optimizer | OwnOptimizer, batch: Batch) -> Outcome:
        rule, outcome = phase.rule, phase.gradient(batch, self.parts.generator)
        scaler = scaler_of(phase)
        changes = bool(rule.clip_norm or rule.l1 or scaler)
        for parameter, gradient in zip(phase.parameters, outcome.gradients, strict=True):
            # What is changed in place is a copy: autograd may give two parameters one and the same tensor.
            parameter.grad = gradient.clone() if changes and gradient is not None else gradient
        if scaler is not None and not scaler.unscale([p.grad for p in phase.parameters if p.grad is not None]):
            return outcome
        if rule.clip_norm:
            clip_grad_norm_(phase.parameters, rule.clip_norm)
        if rule.l1:
            for parameter in phase.parameters:
                if parameter.grad is not None:
                    parameter.grad.add_(parameter.detach().sign(), alpha=rule.l1)
        rate = self.parts.rate(phase, self.epoch, self.next)
        if isinstance(optimizer, OwnOptimizer):
            optimizer.step(rate)
            return outcome
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        return outcome

    def state(self) -> dict[str, Any]:
        states = [o.state() if isinstance(o, OwnOptimizer) else o.state_dict() for o in self.optimizers]
        return {"torch": states, **self.scaling_state()}

    def load_state(self, state: dict[str, Any]) -> None:
        for optimizer, saved in zip(self.optimizers, state["torch"], strict=True):
            if isinstance(optimizer, OwnOptimizer):
                optimizer.load_state(saved)
            else:
                optimizer.load_state_dict(saved)
        self.load_scaling(state)


def _optimizer(phase: Phase, names: dict[int, str]) -> torch.optim.Optimizer | OwnOptimizer:
    if ":" not in phase.rule.optimizer:
        return torch_optimizer(phase.rule, list(phase.parameters))
    named = {names.get(id(p), f"parameter {i}"): p for i, p in enumerate(phase.parameters)}
    return OwnOptimizer(phase.rule.optimizer, named, phase.rule.lr)
