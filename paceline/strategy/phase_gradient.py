"""A phase's gradient straight into a piece of a flat vector, from parameters that are a piece of another."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from paceline.data.dataset import Dataset
from paceline.step.chain import Chain
from paceline.step.flat_parameters import FlatParameters
from paceline.step.phase import Batch, LossPhase, Outcome, Phase
from paceline.strategy.gradient_buckets import BucketFilling


class GradientTarget(NamedTuple):
    """Where a gradient goes: a flat vector, and its parts in the shapes of the parameters."""

    flat: Tensor
    parts: list[Tensor]


class PhaseGradient:
    def __init__(self, phase: Phase, parameters: Tensor, gradient: Tensor, batch: int, dataset: Dataset) -> None:
        self.phase = phase
        self.flat = FlatParameters(phase.parameters, parameters)
        self.chain = Chain.of(phase, self.flat, batch, dataset)
        self.own = self.target(gradient)
        self.aim(self.own)
        self._inference = torch.inference_mode()

    def target(self, gradient: Tensor) -> GradientTarget:
        return GradientTarget(gradient, self.flat.split(gradient))

    def aim(self, target: GradientTarget) -> None:
        """Gradients go to `target` from now on."""
        if self.flat.gradient is target.flat:
            return
        self.flat.gradient = target.flat
        if self.chain is not None:
            self.chain.aim(target.parts)

    def compute(self, batch: Batch, generator: torch.Generator, filling: BucketFilling | None = None) -> Outcome:
        """The last batch of an epoch may be smaller than a chain takes. `filling` puts gradients where they go itself.

        Only what is computed here is in inference mode: whatever an optimizer or an exchange keeps is made outside it,
        so it can be changed wherever it is used next.
        """
        if self.chain is not None and batch[1].shape[0] == self.chain.batch:
            with self._inference:  # nothing is differentiated, so autograd's part can be left out
                return self.chain.gradient(batch)
        with torch.enable_grad():  # whoever calls a worker's step may have left it out for everything else
            if filling is not None:
                outcome = self._fill(filling, batch, generator)
            else:
                outcome = self.phase.gradient(batch, generator)
        if filling is None:
            with torch.no_grad():
                self.flat.gather(outcome.gradients)
        return Outcome(outcome.loss, (), outcome.output)

    def _fill(self, filling: BucketFilling, batch: Batch, generator: torch.Generator) -> Outcome:
        phase = self.phase
        assert isinstance(phase, LossPhase), "others do not announce gradients"
        phase.on_gradient = filling.put
        try:
            outcome = phase.gradient(batch, generator)
        finally:
            phase.on_gradient = None
        filling.finish(outcome.gradients)
        return outcome
