"""A copy of the server on another node: it is told what happens at the server, in order, and so has the same state.

The server answers a worker when the replica has what the worker sent, so that no update is lost with the server.
"""

from __future__ import annotations

import math
import threading
from importlib import import_module
from typing import Any

import torch

from paceline.training.drivers.ray.actor import Actor
from paceline.training.drivers.ray.job import Job
from paceline.training.drivers.ray.mailbox import Mailbox
from paceline.training.drivers.ray.messages import ServerState
from paceline.training.drivers.ray.serving import ServedTraining

CONFIRM_WITHIN_S = 5.0
"""A replica that takes longer is given up; another one is started."""

Event = tuple[str, tuple[Any, ...]]
"""A method of `ServedTraining` and its arguments."""


class ServerReplica(Actor):
    def __init__(self, job: Job) -> None:
        super().__init__(job)
        torch.set_num_threads(1)
        self.generation = ""
        self.lock = threading.RLock()
        """Nobody else is here, but mailboxes have one."""
        self.serving: ServedTraining | None = None

    def begin(self, generation: str, state: ServerState) -> None:
        """Starts to follow the server of this generation, from `state` on."""
        mailboxes = [Mailbox(self.lock) for _ in range(self.job.workers)]
        self.generation, self.serving = generation, ServedTraining(self.job, state, mailboxes, math.inf)

    def follow(self, generation: str, events: list[Event]) -> None:
        """Applies new events of the server; events of an earlier generation are ignored."""
        if generation == self.generation:
            with self.lock:
                for name, arguments in events:
                    getattr(self.serving, name)(*arguments)

    def snapshot(self) -> ServerState | None:
        return None if self.serving is None else self.serving.snapshot()


class ReplicaLink:
    """The server's connection to its replica. Events are sent under the server's lock, and confirmed without it."""

    def __init__(self, replica: Any, generation: str, state: ServerState) -> None:
        self.replica, self.generation = replica, generation
        self._events: list[Event] = []
        self._sent = replica.begin.remote(generation, state)

    def add(self, name: str, arguments: tuple[Any, ...]) -> None:
        self._events.append((name, arguments))

    def send(self) -> Any:
        """Sends the collected events; returns the token for `confirm`."""
        if self._events:
            self._sent = self.replica.follow.remote(self.generation, self._events)
            self._events = []
        return self._sent

    def confirm(self, sent: Any) -> bool:
        """Whether the replica has received everything sent so far; False if it is gone."""
        ray: Any = import_module("ray")
        try:
            ray.get(sent, timeout=CONFIRM_WITHIN_S)
        except ray.exceptions.RayError:
            return False
        return True
