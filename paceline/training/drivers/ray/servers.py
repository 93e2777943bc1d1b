"""The server of a run with its shards or its replica, as the driver process sees them."""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from paceline.errors import PacelineError
from paceline.training.drivers.ray.connection import Shares
from paceline.training.drivers.ray.job import Job
from paceline.training.drivers.ray.messages import ServerActors, ServerState, Status
from paceline.training.drivers.ray.pieces import Array
from paceline.training.drivers.ray.placing import SOME_MEMORY, node_of_server
from paceline.training.drivers.ray.replica_handle import ReplicaHandle
from paceline.training.drivers.ray.server import REJOIN_WITHIN_S, Server
from paceline.training.drivers.ray.shard_handles import ShardHandles
from paceline.training.drivers.ray.sharding import Sharding
from paceline.training.settings import DriverSettings

STATUS_EVERY_S = 0.2


class Servers:
    def __init__(
        self, ray: Any, job: Job, shares: Shares, limits: DriverSettings, on_wait: Callable[[], None]
    ) -> None:  # fmt: skip
        """`on_wait` is called while they start."""
        self.ray, self.limits, self.on_wait = ray, limits, on_wait
        self.sharding = Sharding(job) if job.shards > 1 else None
        self.state: ServerState | None = None
        """What a new server begins from."""
        self._identity = ""
        """Of the server that has begun."""
        self._numbers = itertools.count(1)
        self.server = (
            ray.remote(Server)
            .options(
                num_cpus=job.server_threads if job.server_threads > 1 and job.shards == 1 else 0,
                memory=SOME_MEMORY,
                max_concurrency=2 * job.workers + 8,
                max_restarts=-1,
                scheduling_strategy=node_of_server(ray, shares),
            )
            .remote(job if self.sharding is None else self.sharding.of_server)
        )
        self.shards = ShardHandles(ray, job, self.sharding, limits, on_wait) if self.sharding is not None else None
        self.replica: ReplicaHandle | None = None
        if limits.server_replica and self.shards is None:
            self.replica = ReplicaHandle(ray, job, self.server)

    @property
    def actors(self) -> ServerActors:
        return ServerActors(self.server, self.shards.actors if self.shards is not None else ())

    def start(self, state: ServerState) -> None:
        self.state = state
        self._begin(state, math.inf)
        if self.replica is not None:
            self._await_replica(self.replica)

    def _await_replica(self, replica: ReplicaHandle) -> None:
        """Waits until the replica follows: no update may be made before that."""
        latest_s = time.monotonic() + self.limits.start_timeout
        while time.monotonic() < latest_s:
            self.on_wait()
            asked_s = time.monotonic()
            status: Status | None = self.ask("status", STATUS_EVERY_S, 0)
            if status is None or status.replicated:  # without a server there will be another one
                return
            replica.keep(status.replicated, asked_s)
        raise PacelineError(
            f"the server's replica did not start within {self.limits.start_timeout:g} s (start_timeout)"
        )

    def _begin(self, state: ServerState, join_within_s: float) -> bool:
        """Lets a new server begin; one that dies meanwhile is started again, for as long as a start may take.

        Returns whether it is another one: the one before may only have been out of reach for a while.
        """
        arguments: list[Any] = [state, join_within_s]
        if self.shards is not None and self.sharding is not None:
            self.shards.begin(state)
            own = self.sharding.state_of_server(state)
            followers, generation = self.shards.followers, self.shards.generation
            arguments = [own, join_within_s, followers, generation, self.shards.replicated]
        latest_s = time.monotonic() + self.limits.start_timeout
        began = self.server.begin.remote(*arguments)
        while time.monotonic() < latest_s:
            self.on_wait()
            if self.ray.wait([began], timeout=STATUS_EVERY_S)[0]:
                try:
                    identity: str = self.ray.get(began)
                except self.ray.exceptions.RayActorError:
                    identity = ""
                is_before = identity == self._identity
                if identity and not (is_before and self.shards is not None):  # that one was killed
                    self._identity = identity
                    return not is_before
                began = self.server.begin.remote(*arguments)
        raise PacelineError(f"the server did not start within {self.limits.start_timeout:g} s (start_timeout)")

    def begin_again(self) -> bool:
        """After a death: Ray starts what died, and everything begins from the replica or from the last checkpoint.

        False: the server only could not be reached, and goes on as it is.
        """
        assert self.state is not None
        if self.replica is not None:
            self.state = self.replica.newest(self.state, self.limits.stopped_timeout)
        if self.shards is not None:
            self.ray.kill(self.server, no_restart=False)  # server and shards go back together
            self.state = self.shards.newest(self.state)
        return self._begin(self.state, REJOIN_WITHIN_S)

    # What the launcher asks

    def ask(self, method: str, *arguments: Any) -> Any:
        """Calls a method of the server; None if the server died."""
        with contextlib.suppress(self.ray.exceptions.RayActorError, self.ray.exceptions.ObjectLostError):
            try:
                return self.ray.get(getattr(self.server, method).remote(*arguments), timeout=self.limits.start_timeout)
            except self.ray.exceptions.GetTimeoutError:
                limit_s = self.limits.start_timeout
                raise PacelineError(f"the server did not answer within {limit_s:g} s (start_timeout)") from None
        return None

    def snapshot(self) -> ServerState:
        """The current state or, if something just died, the one that training will continue from."""
        number = next(self._numbers)
        found: ServerState | None = self.ask("snapshot", number)
        if found is not None and self.shards is not None and self.sharding is not None:
            states = self.shards.ask("kept", number)
            found = None if states is None else self.sharding.whole(states)
        if found is not None:
            self.state = found
        assert self.state is not None
        return self.state

    def epoch_parameters(self, epoch: int) -> tuple[int, Array] | None:
        """The version and the parameters at the end of an epoch; None if the server or a shard died."""
        return self._joined(self.ask("epoch_parameters", epoch), "epoch_parameters", epoch)

    def current_parameters(self) -> tuple[int, Array] | None:
        if self.shards is None:
            found: tuple[int, Array] | None = self.ask("current_parameters")
            return found
        number = next(self._numbers)
        state: ServerState | None = self.ask("snapshot", number)
        return self._joined(None if state is None else (state.version, np.empty(0)), "kept_parameters", number)

    def _joined(self, found: tuple[int, Array] | None, method: str, number: int) -> tuple[int, Array] | None:
        """With the shards' slices, where there are shards."""
        if found is None or self.shards is None:
            return found
        pieces = self.shards.ask(method, number)
        return None if pieces is None else (found[0], np.concatenate(pieces))

    def stop(self) -> None:
        if self.replica is not None:
            self.replica.stop()
        for actor in (*(self.shards.followers if self.shards is not None else ()), self.server):
            with contextlib.suppress(Exception):
                self.ray.kill(actor)
