"""Messages between workers, server and launcher. Vectors are sent separately, in pieces."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor

from paceline.step.tally import Score
from paceline.strategy.distribution import FaultRecord
from paceline.strategy.instructions import Compute
from paceline.strategy.ledger import LedgerSummary
from paceline.training.drivers.ray.timeline import TimedSpan

ASK_AGAIN = -2
"""In place of a version, where the update that a worker fetches is not made yet."""


class ServerActors(NamedTuple):
    """Handles of the server's actors."""

    server: Any
    shards: tuple[tuple[Any, ...], ...] = ()
    """Each with its replica, if it has one."""


class ServerLost(Exception):
    """The server died or does not know this worker, which should rejoin and drop its tasks."""


class WorkerReport(NamedTuple):
    """Counters of a worker since it joined."""

    tasks: int = 0
    steps: int = 0
    communicating_s: float = 0.0
    waiting_s: float = 0.0
    joined_s: float = 0.0
    """How long ago it joined."""
    scores: dict[int, Score] | None = None
    """Of the epochs whose losses were counted since the last report."""
    spans: tuple[TimedSpan, ...] = ()
    """Since the last report, on the server's clock."""


class Push(NamedTuple):
    """The metadata of a payload."""

    sequence: int = 0
    samples: int = 0
    steps: int = 0
    pulled: int = 0
    finite: bool = True
    versions: tuple[int, ...] = ()
    """That its fetches returned."""
    size: int = 0
    """Of the vector that comes with it."""
    is_part: bool = False
    """The vector is this member's part of its group's mean, not a payload."""


class Call(NamedTuple):
    """A worker joins, pushes a payload, or asks for a task."""

    worker: int
    incarnation: int
    """Counts the worker's starts."""
    generation: str
    """What the server said when it joined; empty: it joins with this call."""
    report: WorkerReport
    push: Push | None = None
    node: str = ""
    """Where the worker is, with the call that joins."""


class ChannelAddress(NamedTuple):
    """Where the server listens for workers on its node, and the authentication key."""

    name: str
    key: bytes


class Formation(NamedTuple):
    """The members that average the payload of a task."""

    number: int
    rank: int
    members: int


class Reply(NamedTuple):
    generation: str
    """The server that answers, and the worker's joining; empty: it does not know this worker, which should join."""
    task: Compute | None = None
    version: int = 0
    """Of the parameters that come with the task, if its first step fetches."""
    waited_s: float = 0.0
    """How long the server had no task."""
    over: bool = False
    channel: ChannelAddress | None = None
    """Where a worker of the server's node may connect, with the answer to the call that joins."""
    formation: Formation | None = None
    """With whom it averages the payload; of parameters that come with the task, it has its part."""
    whole_wanted: bool = False
    """The mean that it has pushed a part of will not be whole: it should push its payload."""


@dataclass(frozen=True)
class Status:
    """The progress of a run as the server reports it. Times are relative to the reply, because the nodes' clocks
    differ."""

    generation: str
    begun: bool
    finished: bool = False
    failure: tuple[str, str] | None = None
    """The kind of error and its line."""
    version: int = 0
    epochs_done: int = 0
    closed: int = 0
    """Batches that are done, of the epoch under way."""
    alive: int = 0
    nodes: int = 0
    """Nodes that have workers."""
    replicated: bool = False
    """A replica follows, or the shards do."""
    lost_shard: bool = False
    """One of the shards is gone."""
    computing: tuple[int, ...] = ()
    """Workers that have a task."""
    joined: tuple[int, ...] = ()
    """The last incarnation of each worker that has joined; 0: none has."""
    updating_s: float = 0.0
    began_ago_s: float | None = None
    ended_ago_s: float | None = None
    epoch_ended_ago_s: dict[int, float] = field(default_factory=dict)
    ledger: LedgerSummary = field(default_factory=LedgerSummary)
    refusals: tuple[FaultRecord, ...] = ()
    scores: dict[int, Score] = field(default_factory=dict)
    """By epoch, of those that are not taken yet."""
    by_worker: tuple[WorkerReport, ...] = ()
    totals: tuple[Score, ...] = ()
    """Of each worker, over all epochs."""
    accuracies: tuple[tuple[float, ...], ...] = ()
    """Of each worker, by epoch that has ended."""


@dataclass(frozen=True, eq=False)
class ServerState:
    """The state that a server starts from and a checkpoint stores."""

    parameters: Tensor
    saved: dict[str, Any] | None = None
    """Position and server state in the form of a checkpoint; None: nothing was learned yet."""
    score: Score = field(default_factory=Score)
    """Of the epoch under way."""
    epochs_done: int = 0
    version: int = 0
