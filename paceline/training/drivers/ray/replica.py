"""A replica of the server on another node; no update is lost with the server."""

from __future__ import annotations

import threading

import torch

from paceline.training.drivers.ray.actor import Actor
from paceline.training.drivers.ray.following import Event, Following
from paceline.training.drivers.ray.job import Job
from paceline.training.drivers.ray.messages import ServerState
from paceline.training.drivers.ray.serving import ServedTraining


class ServerReplica(Actor):
    def __init__(self, job: Job) -> None:
        super().__init__(job)
        torch.set_num_threads(1)
        self.lock = threading.RLock()
        """Nobody else is here, but mailboxes have one."""
        self.following = Following(job, self.lock)

    @property
    def serving(self) -> ServedTraining | None:
        return self.following.serving

    def begin(self, generation: str, state: ServerState) -> None:
        with self.lock:
            self.following.begin(generation, state)

    def follow(self, generation: str, first: int, events: list[Event]) -> None:
        with self.lock:
            self.following.follow(generation, first, events)

    def snapshot(self) -> ServerState | None:
        return None if self.serving is None else self.serving.snapshot()
