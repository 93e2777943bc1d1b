"""Workers as the coordinator sees them, and the groups in which they wait for each other."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from paceline.strategy.instructions import Compute

Arrival = tuple[Compute, int]
"""A finished task, and the version its payload was computed on."""


@dataclass(slots=True)
class Member:
    """One worker, through all its lives."""

    group: Group
    sequence: int = 0
    """Tasks given so far, in all its lives."""
    steps: int = 0
    """Steps since the last fetch; 0: the next step fetches."""
    tasks: dict[int, Compute] = field(default_factory=dict)
    """Given and not ready yet, by sequence."""
    kept: set[int] = field(default_factory=set)
    """Sequences of the payloads that are ready and not applied yet."""
    alive: bool = False
    ahead: int | None = None
    """Tasks it is given at a time, where that is not for all the same."""


@dataclass(slots=True)
class Group:
    """Workers that wait for each other. A round is a part of the data for each; its payloads make one contribution."""

    number: int
    workers: list[int] = field(default_factory=list)
    """Who is there or will be again, in order: a round has a part for each."""
    members: list[int] = field(default_factory=list)
    """Those of them that are there."""
    clock: int = 0
    """Rounds committed."""
    epoch: int = 0
    """Of the round under way."""
    version: int = 0
    """What the round under way is computed on."""
    todo: deque[tuple[int, ...]] = field(default_factory=deque)
    """Parts of the round that nobody has: batches."""
    open: set[tuple[int, int]] = field(default_factory=set)
    """Tasks (worker, sequence) that the round waits for."""
    arrived: list[Arrival] = field(default_factory=list)
    pushed: set[int] = field(default_factory=set)
    """Whose payloads these are."""
    applying: int = 0
    """Contributions committed and not applied yet."""
