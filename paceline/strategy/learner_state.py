"""What a worker reports about a payload, and what it keeps between two tasks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

from paceline.step.optimizers import State


class Result(NamedTuple):
    """What is known about a payload besides its numbers."""

    samples: int
    steps: int
    pulled: int
    """The version of the last fetch; staleness counts from it."""


@dataclass(frozen=True, eq=False)
class LearnerState:
    """What a worker keeps between two tasks. Tensors in it are not to be changed."""

    pulled: int = 0
    parameters: Tensor | None = None
    """None where the next task begins with a fetch; the fetched tensor itself while nothing has changed it."""
    optimizer: tuple[State, ...] = ()
    exchange: State = field(default_factory=dict)
    counters: tuple[Tensor, ...] = field(default=(), repr=False)
    """Buffers of whole numbers, which are not exchanged."""
    fetched: Tensor | None = field(default=None, repr=False)
    """The parameters as they were fetched last, where they are fetched fragment by fragment."""
