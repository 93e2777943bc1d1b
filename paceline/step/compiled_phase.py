"""A phase whose gradient and update are one compiled function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from paceline.data.dataset import Dataset
from paceline.data.fields import Fields
from paceline.step.clipping import clip_norm_
from paceline.step.flat import FlatPhase
from paceline.step.optimizers import update
from paceline.step.phase import Batch, Outcome, Phase
from paceline.step.tally import ranks_of
from paceline.step.traced_step import trace_step

OPTIONS: dict[str, str | int | bool | Callable[..., Any]] = {
    "fallback_random": True,
    "triton.mix_order_reduction": False,
}
"""Of the compiler. Random numbers are those of eager PyTorch. The gradients of a layer norm and of its weights are not
fused: the fused kernel of PyTorch 2.11 adds up partial sums that it has not written."""


class CompiledPhase(FlatPhase):
    """A phase whose gradient and update are one compiled function, made by its first full batch."""

    def __init__(self, phase: Phase, batch: int, dataset: Dataset) -> None:
        super().__init__(phase, batch, dataset)
        self.chain = None
        self.batch = batch
        self.inputs: tuple[Tensor, ...] = ()
        self.has_loss = True
        self.whole: Callable[..., Sequence[Tensor]] | None = None

    def step(self, batch: Batch, generator: torch.Generator, lr: Tensor | None = None) -> Outcome:
        if len(batch[1]) != self.batch:
            return self.uncompiled(batch, generator, lr)  # a smaller last batch is not worth compiling again
        if self.whole is None:
            self._compile(batch, generator)
            assert self.whole is not None
        with torch.no_grad():
            found = list(self.whole(*self.inputs, (self.lr if lr is None else lr).view(1), *_tensors(batch)))
        loss = found.pop(0) if self.has_loss else None
        return Outcome(loss, (), found[0] if found else None)

    def uncompiled(self, batch: Batch, generator: torch.Generator, lr: Tensor | None = None) -> Outcome:
        return super().step(batch, generator, lr)

    def _compile(self, batch: Batch, generator: torch.Generator) -> None:
        def gradient_and_update(lr: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
            rule, flat = self.phase.rule, self.flat
            outcome = self.phase.gradient(_batch_like(batch, tensors), generator)
            output = outcome.output
            if output is not None and outcome.loss is not None:
                output = ranks_of(output, tensors[-1])  # the scores of a language model need not be written at all
            with torch.no_grad():
                gradient = torch.cat(flat.pieces(outcome.gradients))
                if rule.clip_norm:
                    clip_norm_([gradient], rule.clip_norm)
                update(rule, flat.buffer, gradient, self.state, lr.squeeze(0))
            self.has_loss = outcome.loss is not None
            return tuple(t for t in (outcome.loss, output) if t is not None)

        traced = trace_step(gradient_and_update, (self.lr.view(1), *_tensors(batch)), self.flat)
        self.inputs = traced.inputs
        self.whole = torch.compile(traced.graph, fullgraph=True, dynamic=False, options=OPTIONS)


def _tensors(batch: Batch) -> tuple[Tensor, ...]:
    x, y = batch
    return (*(x.tensors.values() if isinstance(x, Fields) else (x,)), y)


def _batch_like(batch: Batch, tensors: Sequence[Tensor]) -> Batch:
    """The batch with other tensors."""
    x, _ = batch
    if not isinstance(x, Fields):
        return tensors[0], tensors[1]
    left = iter(tensors)
    return x.each(lambda _: next(left)), tensors[-1]
