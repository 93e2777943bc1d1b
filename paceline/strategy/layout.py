"""The layout of the flat vector that workers and server exchange: the phases' parameters, then the buffers."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch

from paceline.errors import StrategyError
from paceline.step.flat_parameters import FlatParameters
from paceline.step.optimizers import Rule
from paceline.step.phase import Phase, share_a_parameter
from paceline.step.schedule import rate_at
from paceline.step.step import Parts


@dataclass(frozen=True)
class PhaseLayout:
    rule: Rule
    tensors: tuple[tuple[str, tuple[int, ...]], ...]
    """Names and shapes of the phase's parameters, in their order."""
    first: int | None = None
    """Where they begin, if not after those of the phase before: phases of other epochs train some of them, too."""

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

    @functools.cached_property
    def parameters(self) -> int:
        return max(last for _, last in self.phase_ends())

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
        ends: list[tuple[int, int]] = []
        for phase, size in zip(self.phases, self.phase_sizes, strict=True):
            first = phase.first if phase.first is not None else ends[-1][1] if ends else 0
            ends.append((first, first + size))
        return ends

    @property
    def divided(self) -> bool:
        """Whether no two phases have a parameter in common."""
        return all(phase.first is None for phase in self.phases)

    def rate(self, rule: Rule, epoch: int, step: int) -> float:
        """The learning rate of a rule at a step of an epoch of one pass."""
        return rate_at(rule, epoch, step, self.batches, self.epochs)

    @staticmethod
    def of(parts: Parts, buffers: int) -> Layout:
        names = {id(p): name for name, p in parts.network.named_parameters()}
        phases, places = [], placed(parts.phases)
        assert places is not None, "asked before"
        for phase, first in zip(parts.phases, places, strict=True):
            tensors = ((names.get(id(p), f"parameter {i}"), tuple(p.shape)) for i, p in enumerate(phase.parameters))
            phases.append(PhaseLayout(phase.rule, tuple(tensors), first))
        dtype = "float64" if parts.phases[0].parameters[0].dtype == torch.float64 else "float32"
        return Layout(tuple(phases), buffers, parts.updates_per_epoch, parts.workload.epochs, dtype)


def check_distributable(parts: Parts) -> None:
    """Raises `StrategyError` if a network's phases cannot share one flat vector."""
    if share_a_parameter(parts.phases):
        obstacle: str | None = "two phases share a parameter"
    elif placed(parts.phases) is None:
        obstacle = "a phase has some parameters of another in between its own: list them in the same order"
    else:
        obstacle = FlatParameters.possible([p for phase in parts.phases for p in phase.parameters])
    if obstacle:
        raise StrategyError(f"{parts.workload.network} cannot be distributed: {obstacle}")


def placed(phases: Sequence[Phase]) -> list[int | None] | None:
    """Where the parameters of each phase begin, as `PhaseLayout` has it, if every parameter is there once.

    None: those of a phase would not be one piece.
    """
    begins: dict[int, int] = {}
    found: list[int | None] = []
    end = 0
    for phase in phases:
        first, shared = begins.get(id(phase.parameters[0]), end), any(id(p) in begins for p in phase.parameters)
        found.append(first if shared else None)
        for parameter in phase.parameters:
            if begins.setdefault(id(parameter), end) != first:
                return None
            first += parameter.numel()
            end = max(end, first)
    return found
