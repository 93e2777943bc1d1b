"""The layout of the flat vector that workers and server exchange: the phases' parameters, then the buffers."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from math import prod

import torch

from paceline.step.optimizers import Rule
from paceline.step.schedule import learning_rate
from paceline.step.step import Parts
from paceline.workload import parse_schedule

_parsed = functools.lru_cache(maxsize=64)(parse_schedule)
"""Every update asks for a schedule."""


@dataclass(frozen=True)
class PhaseLayout:
    rule: Rule
    tensors: tuple[tuple[str, tuple[int, ...]], ...]
    """Names and shapes of the phase's parameters, in their order."""

    @property
    def size(self) -> int:
        return sum(prod(shape) for _, shape in self.tensors)


@dataclass(frozen=True)
class Layout:
    """Plain values, so that it can be sent to a process that has neither network nor data."""

    phases: tuple[PhaseLayout, ...]
    buffers: int
    """Numbers at the end that are no parameters: running means and variances of batch norm."""
    batches: int
    """Batches in one pass over the data; the rate's schedule counts in these."""
    epochs: int
    dtype: str

    @functools.cached_property
    def phase_sizes(self) -> tuple[int, ...]:
        return tuple(phase.size for phase in self.phases)

    @property
    def parameters(self) -> int:
        return sum(self.phase_sizes)

    @property
    def size(self) -> int:
        return self.parameters + self.buffers

    @property
    def torch_dtype(self) -> torch.dtype:
        return torch.float64 if self.dtype == "float64" else torch.float32

    @property
    def size_bytes(self) -> int:
        return self.size * self.torch_dtype.itemsize

    def phase_ends(self) -> list[tuple[int, int]]:
        """Where each phase's parameters begin and end."""
        ends, first = [], 0
        for size in self.phase_sizes:
            ends.append((first, first + size))
            first += size
        return ends

    def rate(self, rule: Rule, epoch: int, step: int) -> float:
        """The learning rate of a rule at a step of an epoch of one pass."""
        return learning_rate(rule.lr, _parsed(rule.schedule), epoch * self.batches + step, self.batches, self.epochs)

    @staticmethod
    def of(parts: Parts, buffers: int) -> Layout:
        names = {id(p): name for name, p in parts.network.named_parameters()}
        phases = []
        for phase in parts.phases:
            tensors = ((names.get(id(p), f"parameter {i}"), tuple(p.shape)) for i, p in enumerate(phase.parameters))
            phases.append(PhaseLayout(phase.rule, tuple(tensors)))
        dtype = "float64" if parts.phases[0].parameters[0].dtype == torch.float64 else "float32"
        return Layout(tuple(phases), buffers, parts.updates_per_epoch, parts.workload.epochs, dtype)
