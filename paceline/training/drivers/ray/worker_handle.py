"""The driver process's handle to one worker, through all its incarnations."""

from __future__ import annotations

import contextlib
import time
from typing import Any

from paceline.training.drivers.ray.hang_detection import Heartbeat
from paceline.training.drivers.ray.messages import ServerActors
from paceline.training.drivers.ray.sent_objects import SentObjects
from paceline.training.settings import DriverSettings


class WorkerHandle:
    def __init__(self, ray: Any, actor: Any, servers: ServerActors, objects: SentObjects | None) -> None:
        self.ray, self.actor, self.servers, self.objects = ray, actor, servers, objects
        self.incarnation = self.starts = 0
        """How often it was told to work, and how often of these Ray had a process for it."""
        self.try_again_s = 0.0
        """When it is told again, if Ray had none."""
        self.consecutive_failures = 0
        self.started_s = 0.0
        self.working: Any = None
        """Its work, as a reference that is ready when it ends."""
        self._heartbeat = Heartbeat(0.0)
        self._asked: Any = None

    def start(self, *, again: bool = False) -> None:
        """Lets the actor work as soon as Ray has started it. `again`: the last call found no process."""
        self.incarnation += 1
        self.starts += not again
        self.started_s = time.monotonic()
        self._heartbeat, self._asked = Heartbeat(self.started_s), None
        self.working = self.actor.work.remote(self.servers, self.incarnation, self.objects)

    def hung(self, limits: DriverSettings, *, computing: bool) -> str | None:
        """The reason why a hung worker was killed; Ray restarts it."""
        now_s, heartbeat = time.monotonic(), self._heartbeat
        if self._asked is not None and self.ray.wait([self._asked], timeout=0)[0]:
            with contextlib.suppress(self.ray.exceptions.RayError):
                heartbeat.answered(now_s, *self.ray.get(self._asked))
            self._asked = None
        if heartbeat.should_ask(now_s):
            self._asked = self.actor.vitals.remote()
            heartbeat.asked(now_s)
        verdict = heartbeat.verdict(now_s, limits, computing=computing)
        if verdict is not None:
            self.ray.kill(self.actor, no_restart=False)
            self._heartbeat, self._asked = Heartbeat(now_s), None
        return verdict
