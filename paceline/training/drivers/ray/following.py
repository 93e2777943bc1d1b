"""A copy of the server's training that is told what happens at the server, in order, and so has the same state.

A replica follows with all of the parameters, a shard with its slice of them.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from typing import Any

from paceline.training.drivers.ray.job import Job
from paceline.training.drivers.ray.mailbox import Mailbox
from paceline.training.drivers.ray.messages import ServerState
from paceline.training.drivers.ray.pieces import Array
from paceline.training.drivers.ray.serving import ServedTraining

Event = tuple[str, tuple[Any, ...]]
"""A method of `ServedTraining` and its arguments."""
EVENTS_KEPT = 4096
"""By a shard, for one that has heard less when the server died."""


class Following:
    """Its owner holds the lock during every call."""

    def __init__(self, job: Job, lock: threading.RLock) -> None:
        self.job, self.lock = job, lock
        self.generation = ""
        self.serving: ServedTraining | None = None
        self.count = 0
        """Events so far."""
        self.received: dict[tuple[int, int], Array] | None = None
        """A shard's slices of payloads by worker and sequence; None: payloads come with the events."""
        self.latest: deque[Event] = deque(maxlen=0)
        self._early: dict[int, list[Event]] = {}
        """Events whose predecessors are still on their way, by the number of the first."""

    def begin(self, generation: str, state: ServerState) -> None:
        """Starts to follow the server of this generation, from `state` on."""
        mailboxes = [Mailbox(self.lock) for _ in range(self.job.workers)]
        self.generation, self.serving = generation, ServedTraining(self.job, state, mailboxes, math.inf)
        self.count = 0
        self.latest.clear()
        self._early.clear()

    def follow(self, generation: str, first: int, events: list[Event]) -> None:
        """Applies new events, of which `first` came before; those of an earlier generation are ignored."""
        if generation != self.generation:
            return
        self._early[first] = events
        while (following := self._early.pop(self.count, None)) is not None:
            for name, arguments in following:
                self._apply(name, arguments)
                self.count += 1
            self.latest.extend(following)

    def _apply(self, name: str, arguments: tuple[Any, ...]) -> None:
        if name == "push" and self.received is not None:
            worker, push, _ = arguments
            arguments = worker, push, (self.received.pop((worker, push.sequence)),)
        getattr(self.serving, name)(*arguments)
