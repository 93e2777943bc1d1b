"""The flat step: parameters in one buffer, so that an update is a few operations however many layers there are."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from paceline.data.dataset import Dataset
from paceline.errors import CheckpointError
from paceline.step.chain import Chain
from paceline.step.clipping import clip_norm_
from paceline.step.flat_parameters import FlatParameters
from paceline.step.layout import same_order
from paceline.step.loss_scaling import scaler_of
from paceline.step.optimizers import State, fused_update, has_fused_kernel, initial_state, update
from paceline.step.phase import Batch, Outcome, Phase
from paceline.step.step import Parts, Step, reported
from paceline.step.tally import Tally


class FlatPhase:
    """A phase whose parameters, gradient and optimizer state are flat."""

    def __init__(self, phase: Phase, batch: int, dataset: Dataset) -> None:
        self.phase = phase
        self.scaler = scaler_of(phase)
        self.flat = FlatParameters(phase.parameters)
        self.chain = Chain.of(phase, self.flat, batch, dataset)
        buffer = self.flat.buffer
        self.state: State = initial_state(phase.rule, buffer)
        exact = torch.float64 if buffer.dtype == torch.float64 else torch.float32
        self.lr = torch.zeros((), dtype=exact, device=buffer.device)
        self.fused = has_fused_kernel(phase.rule, buffer)
        self.velocity = [self.state["velocity"]] if self.fused and self.state else []
        self.pieces = list(buffer.split(self.flat.sizes))
        self.velocities = [piece for flat in self.velocity for piece in flat.split(self.flat.sizes)]

    def step(self, batch: Batch, generator: torch.Generator, lr: Tensor | None = None) -> Outcome:
        """One gradient and one update, at the rate in `lr`."""
        rule, flat, lr = self.phase.rule, self.flat, self.lr if lr is None else lr
        if self.chain is not None and len(batch[1]) == self.chain.batch:
            outcome = self.chain.gradient(batch)
            self._update(lr)
            return outcome
        outcome = self.phase.gradient(batch, generator)
        gradients = [g for g in outcome.gradients if g is not None]
        with torch.no_grad():
            if self.fused and not self.scaler and not rule.clip_norm and len(gradients) == len(flat.views):
                # Flat tensors, because the kernel copies channels-last ones before it updates them.
                ordered = [_in_memory_order(g, view) for g, view in zip(gradients, flat.views, strict=True)]
                fused_update(rule, self.pieces, ordered, self.velocities, lr)
            else:
                flat.gather(outcome.gradients)
                if self.scaler is None or self.scaler.unscale([flat.gradient]):
                    self._update(lr)
        return Outcome(outcome.loss, (), outcome.output)  # the gradients have served; a large network's are let go here

    def _update(self, lr: Tensor) -> None:
        """One update by the flat gradient."""
        rule, flat = self.phase.rule, self.flat
        if rule.clip_norm:
            clip_norm_([flat.gradient], rule.clip_norm)
        if self.fused:
            fused_update(rule, [flat.buffer], [flat.gradient], self.velocity, lr)
        else:
            update(rule, flat.buffer, flat.gradient, self.state, lr)

    def load_state(self, saved: dict[str, Tensor]) -> None:
        if saved.keys() != self.state.keys():
            raise CheckpointError(f"the checkpoint's optimizer is not {self.phase.rule.optimizer}")
        for name, tensor in self.state.items():
            tensor.copy_(saved[name])


def _in_memory_order(gradient: Tensor, parameter: Tensor) -> Tensor:
    """The gradient as a flat tensor, in the order in which its parameter lies in memory.

    A convolution whose output is read with the channels last returns its gradient in that layout.
    """
    if not same_order(gradient, parameter):
        gradient = torch.empty_like(parameter).copy_(gradient)
    return gradient.as_strided((gradient.numel(),), (1,))


class FlatStep(Step):
    kind = "flat"
    phase_type: ClassVar[type[FlatPhase]] = FlatPhase

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.phases: list[FlatPhase] = []
        """Those of the current epoch: a phase that follows another may train the same parameters."""
        self._make_flat(parts.active(0))

    def _make_flat(self, active: list[Phase]) -> None:
        known = {id(each.phase): each for each in self.phases}
        batch, dataset = self.parts.feeder.order.batch, self.parts.dataset
        self.phases = [known.get(id(phase)) or self.phase_type(phase, batch, dataset) for phase in active]

    def begin(self, epoch: int, first: int = 0) -> None:
        self._make_flat(self.parts.active(epoch))
        super().begin(epoch, first)

    def advance(self, count: int, tally: Tally) -> None:
        if all(phase.chain is not None for phase in self.phases):
            whole = max(0, min(count, self.parts.feeder.order.full_batches - self.next))
            count -= whole
            with torch.inference_mode():  # nothing is differentiated here, so autograd's part can be left out
                super().advance(whole, tally)
        super().advance(count, tally)

    def laid_out(self, batch: Batch) -> Batch:
        """The batch in the memory layout in which the step takes it."""
        return batch

    def take(self, batch: Batch) -> Outcome:
        outcomes = []
        for phase in self.phases:
            phase.lr.fill_(self.parts.rate(phase.phase, self.epoch, self.next))
            outcomes.append(phase.step(batch, self.parts.generator))
        return reported(outcomes)

    def state(self) -> dict[str, Any]:
        places = {id(phase): place for place, phase in enumerate(self.parts.phases)}
        active = [places[id(phase.phase)] for phase in self.phases]
        return {"flat": [dict(phase.state) for phase in self.phases], "phases": active, **self.scaling_state()}

    def load_state(self, state: dict[str, Any]) -> None:
        phases = self.parts.phases
        self._make_flat([phases[place] for place in state.get("phases", range(len(phases)))])
        for phase, saved in zip(self.phases, state["flat"], strict=True):
            phase.load_state(saved)
        self.load_scaling(state)
