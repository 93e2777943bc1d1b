"""The flat step: parameters in one buffer, so that an update is a few operations however many layers there are."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from paceline.errors import CheckpointError
from paceline.step.flat_parameters import FlatParameters
from paceline.step.optimizers import State, initial_state, update
from paceline.step.phase import Batch, Outcome, Phase
from paceline.step.step import Parts, Step, reported


class FlatPhase:
    """A phase whose parameters, gradient and optimizer state are flat."""

    def __init__(self, phase: Phase) -> None:
        self.phase = phase
        self.flat = FlatParameters(phase.parameters)
        self.state: State = initial_state(phase.rule, self.flat.buffer)
        self.lr = torch.zeros((), dtype=torch.float64, device=self.flat.buffer.device)
        self._rate = 0.0

    def set_rate(self, rate: float) -> None:
        if rate != self._rate:
            self._rate = rate
            self.lr.fill_(rate)

    def step(self, batch: Batch, generator: torch.Generator) -> Outcome:
        outcome = self.phase.gradient(batch, generator)
        with torch.no_grad():
            update(self.phase.rule, self.flat.buffer, self.flat.gather(outcome.gradients), self.state, self.lr)
        return outcome

    def load_state(self, saved: dict[str, Tensor]) -> None:
        if saved.keys() != self.state.keys():
            raise CheckpointError(f"the checkpoint's optimizer is not {self.phase.rule.optimizer}")
        for name, tensor in self.state.items():
            tensor.copy_(saved[name])


class FlatStep(Step):
    kind = "flat"

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.phases = [FlatPhase(phase) for phase in parts.phases]

    def take(self, batch: Batch) -> Outcome:
        outcomes = []
        for phase in self.phases:
            phase.set_rate(self.parts.rate(phase.phase, self.epoch, self.next))
            outcomes.append(phase.step(batch, self.parts.generator))
        return reported(outcomes)

    def state(self) -> dict[str, Any]:
        return {"flat": [dict(phase.state) for phase in self.phases]}

    def load_state(self, state: dict[str, Any]) -> None:
        for phase, saved in zip(self.phases, state["flat"], strict=True):
            phase.load_state(saved)
