"""What lies where in the flat vector that workers and server exchange: the phases' parameters, then the buffers."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from paceline.step.optimizers import Rule
from paceline.step.schedule import learning_rate
from paceline.step.step import Parts
from paceline.workload import parse_schedule


@dataclass(frozen=True)
class PhaseLayout:
    size: int
    rule: Rule


@dataclass(frozen=True)
class Layout:
    """Plain values, so that it can be sent to a process that has neither network nor data."""

    phases: tuple[PhaseLayout, ...]
    buffers: int
    """Numbers at the end that are no parameters: running means and variances of batch norm."""
    batches: int
    """Of an epoch of one pass over the data; what the schedule of the rate counts in."""
    epochs: int
    dtype: str

    @property
    def parameters(self) -> int:
        return sum(phase.size for phase in self.phases)

    @property
    def size(self) -> int:
        return self.parameters + self.buffers

    @property
    def torch_dtype(self) -> torch.dtype:
        return torch.float64 if self.dtype == "float64" else torch.float32

    @property
    def size_bytes(self) -> int:
        return self.size * self.torch_dtype.itemsize

    def rate(self, rule: Rule, epoch: int, step: int) -> float:
        """The learning rate of a rule at a step of an epoch of one pass."""
        schedule = parse_schedule(rule.schedule)
        return learning_rate(rule.lr, schedule, epoch * self.batches + step, self.batches, self.epochs)

    @staticmethod
    def of(parts: Parts, buffers: int) -> Layout:
        phases = tuple(PhaseLayout(sum(p.numel() for p in phase.parameters), phase.rule) for phase in parts.phases)
        double = parts.phases[0].parameters[0].dtype == torch.float64
        return Layout(
            phases, buffers, parts.updates_per_epoch, parts.workload.epochs, "float64" if double else "float32"
        )
