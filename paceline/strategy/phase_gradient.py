"""A phase's gradient straight into a piece of a flat vector, from parameters that are a piece of another."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline.data.dataset import Dataset
from paceline.step.chain import Chain
from paceline.step.flat_parameters import FlatParameters
from paceline.step.phase import Batch, Outcome, Phase


class PhaseGradient:
    def __init__(self, phase: Phase, parameters: Tensor, gradient: Tensor, batch: int, dataset: Dataset) -> None:
        self.phase = phase
        self.flat = FlatParameters(phase.parameters, parameters)
        self.flat.gradient = gradient
        self.chain = Chain.of(phase, self.flat, batch, dataset)

    def written_out(self, batch: Batch) -> bool:
        """Whether it needs no autograd for this batch; the last of an epoch may be smaller than a chain takes."""
        return self.chain is not None and len(batch[1]) == self.chain.batch

    def compute(self, batch: Batch, generator: torch.Generator) -> Outcome:
        if self.chain is not None and len(batch[1]) == self.chain.batch:
            return self.chain.gradient(batch)
        outcome = self.phase.gradient(batch, generator)
        with torch.no_grad():
            self.flat.gather(outcome.gradients)
        return Outcome(outcome.loss, (), outcome.output)
