"""What a coordinator tells the engine to do."""

from __future__ import annotations

from typing import NamedTuple


class Compute(NamedTuple):
    """A worker's task: a gradient on each of some batches, then its payload is ready."""

    worker: int
    sequence: int
    """Counts this worker's tasks, over all its restarts."""
    epoch: int
    batches: tuple[int, ...]
    fetches: tuple[int, ...]
    """Before which of them the parameters are fetched, as positions in `batches`."""
    round: int | None = None
    """The round of its group that it is part of; all of a round's tasks fetch the same version. None: the newest."""
    parts: int = 1
    """How many tasks the round has."""
    fragment: int = 0
    """Which fragment of the parameters its payload is of, where they are exchanged in turn."""
    whole: bool = True
    """Whether its fetch is of all parameters, not only of the fragment that the round before pushed."""


class Contribution(NamedTuple):
    """What a group gives to an update: the mean of its members' payloads."""

    group: int
    tasks: tuple[Compute, ...]
    """In the order of their batches, so that sums depend neither on who came first nor on who computed what."""
    staleness: int


class Apply(NamedTuple):
    """One update: each contribution is corrected, then their mean is given to the server's optimizer."""

    update: int
    """Its number from 1: the version it makes."""
    contributions: tuple[Contribution, ...]
    epoch: int
    closed: int
    """How many of the epoch's batches were closed before: where in the rate's schedule it stands."""
    turn: int = 0
    """Which of the epoch's phases, or which fragment of the parameters, changes, where they do so in turn."""


class Drop(NamedTuple):
    """A payload that is not wanted; its worker may overwrite it.

    A task that a round continued without is dropped then, and its payload once more when it comes.
    """

    worker: int
    sequence: int
    task: Compute | None = None
    """The task, where its batches are closed with this."""


class EpochDone(NamedTuple):
    """Every batch of the epoch was applied, dropped or refused; the parameters now are the epoch's."""

    epoch: int


Instruction = Compute | Apply | Drop | EpochDone
