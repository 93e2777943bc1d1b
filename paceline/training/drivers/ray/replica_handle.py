"""The driver process's handle to the server's replica, which runs on another node and is replaced when it dies."""

from __future__ import annotations

import contextlib
import time
from typing import Any

from paceline.training.drivers.ray.job import Job
from paceline.training.drivers.ray.messages import ServerState
from paceline.training.drivers.ray.placing import SOME_MEMORY
from paceline.training.drivers.ray.replica import ServerReplica

RETRY_S = 1.0


class ReplicaHandle:
    def __init__(self, ray: Any, job: Job, server: Any) -> None:
        self.ray, self.job, self.server = ray, job, server
        self.actor: Any = None
        self.followed_s = 0.0
        """When the server was told about the actor."""
        self._placing: Any = None
        self._starting: Any = None
        self._retry_s = 0.0

    def keep(self, replicated: bool, asked_s: float) -> None:
        """Takes the next step towards a replica that follows, without waiting; the server was asked for it then."""
        now_s = time.monotonic()
        if replicated or now_s < self._retry_s or asked_s < self.followed_s:
            return
        try:
            self._advance(now_s)
        except self.ray.exceptions.RayError:  # the server or the replica died meanwhile
            self.stop()
            self._retry_s = now_s + RETRY_S

    def _advance(self, now_s: float) -> None:
        if self._starting is not None:
            if self._is_ready(self._starting):
                self.ray.get(self._starting)
                self.server.replicate.remote(self.actor)
                self._starting, self.followed_s = None, now_s
        elif self._placing is None:
            self.stop()  # the server has given it up, or is another one
            self._placing = self.server.node.remote()
        elif self._is_ready(self._placing):
            of_server = self.ray.get(self._placing)
            self._placing = None
            self._start(of_server)

    def _is_ready(self, reference: Any) -> bool:
        return bool(self.ray.wait([reference], timeout=0)[0])

    def _start(self, of_server: str) -> None:
        """Starts the replica, on another node than the server if there is one."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        alive = [node["NodeID"] for node in self.ray.nodes() if node["Alive"]]
        node = next((node for node in reversed(alive) if node != of_server), of_server)
        where = NodeAffinitySchedulingStrategy(node, soft=True)
        self.actor = (
            self.ray.remote(ServerReplica)
            .options(num_cpus=0, memory=SOME_MEMORY, scheduling_strategy=where)
            .remote(self.job)
        )
        self._starting = self.actor.node.remote()

    def newest(self, state: ServerState, within_s: float) -> ServerState:
        """The replica's state, or `state` if that is newer or there is no replica."""
        if self.actor is not None and self._starting is None:
            with contextlib.suppress(self.ray.exceptions.RayError):
                found: ServerState | None = self.ray.get(self.actor.snapshot.remote(), timeout=within_s)
                if found is not None and found.version >= state.version:
                    return found
        return state

    def stop(self) -> None:
        if self.actor is not None:
            self.ray.kill(self.actor)
        self.actor = self._placing = self._starting = None
