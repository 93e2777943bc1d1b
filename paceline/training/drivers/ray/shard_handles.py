"""The driver process's handles to the shards of the server, and to their replicas.

All of them go back together: a shard that dies takes the server along, and everything begins again from one version.
With replicas that is the newest of which every slice is still there, otherwise that of the last checkpoint.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any

from paceline.errors import PacelineError
from paceline.training.drivers.ray.following import Event
from paceline.training.drivers.ray.job import Job
from paceline.training.drivers.ray.messages import ServerState
from paceline.training.drivers.ray.placing import SOME_MEMORY, nodes_of_shards
from paceline.training.drivers.ray.shard import KEPT_WITHIN_S, ServerShard
from paceline.training.drivers.ray.sharding import Sharding
from paceline.training.settings import DriverSettings

WAIT_S, RETRY_S = 0.2, 0.1
VERSIONS = 2
"""Of its slice for which a shard requests memory: an update makes a new one."""
CALLS_PER_WORKER = 6
"""At once: two payloads and two sets of parameters, and as many of before it joined again."""


class ShardHandles:
    def __init__(
        self, ray: Any, job: Job, sharding: Sharding, limits: DriverSettings, on_wait: Callable[[], None]
    ) -> None:  # fmt: skip
        self.ray, self.sharding, self.limits, self.on_wait = ray, sharding, limits, on_wait
        self.generation = ""
        copies = 2 if limits.server_replica else 1
        self.actors = tuple(
            tuple(self._start(job, number, where) for where in places)
            for number, places in enumerate(nodes_of_shards(ray, job.shards, copies))
        )

    def _start(self, job: Job, number: int, where: Any) -> Any:
        own = self.sharding.of_shard(number)
        make = self.ray.remote(ServerShard).options(
            num_cpus=job.server_threads if job.server_threads > 1 else 0,
            memory=max(SOME_MEMORY, VERSIONS * own.layout.size_bytes),
            max_concurrency=CALLS_PER_WORKER * job.workers + 8,
            max_restarts=-1,
            scheduling_strategy=where,
        )
        return make.remote(own)

    @property
    def followers(self) -> tuple[Any, ...]:
        return tuple(actor for actors in self.actors for actor in actors)

    @property
    def replicated(self) -> bool:
        return len(self.actors[0]) > 1

    def begin(self, state: ServerState) -> None:
        """Gives every shard its slice of a state, as soon as Ray has started it. One that hangs is started again."""
        self.generation = uuid.uuid4().hex
        slices = [self.ray.put(piece) for piece in self.sharding.states_of_shards(state)]
        states = {actor: piece for actors, piece in zip(self.actors, slices, strict=True) for actor in actors}
        latest_s = time.monotonic() + self.limits.start_timeout
        sent = {actor.begin.remote(self.generation, piece): actor for actor, piece in states.items()}
        while sent and time.monotonic() < latest_s:
            self.on_wait()
            for reference in self.ray.wait([*sent], timeout=WAIT_S)[0]:
                actor = sent.pop(reference)
                try:
                    self.ray.get(reference)
                except self.ray.exceptions.RayActorError:  # Ray has not started it yet
                    time.sleep(RETRY_S)
                    sent[actor.begin.remote(self.generation, states[actor])] = actor
        if sent:
            raise PacelineError(
                f"the server's shards did not start within {self.limits.start_timeout:g} s (start_timeout)"
            )

    def ask(self, method: str, *arguments: Any) -> list[Any] | None:
        """What each shard answers about the generation that has begun; None if one does not."""
        sent = [getattr(actors[0], method).remote(self.generation, *arguments) for actors in self.actors]
        try:
            found = self.ray.get(sent, timeout=2 * KEPT_WITHIN_S)
        except self.ray.exceptions.RayError:
            return None
        return None if any(piece is None for piece in found) else found

    def newest(self, state: ServerState) -> ServerState:
        """After the server is gone: the newest state of which every slice is there, or the given one."""
        sealed = self._sealed()
        if not self.replicated or any(not any(actor in sealed for actor in actors) for actors in self.actors):
            return state
        count, events = max(sealed.values(), key=lambda heard: heard[0])
        found: list[ServerState] = []
        for actors in self.actors:
            actor = next(actor for actor in actors if actor in sealed)
            heard, _ = sealed[actor]
            if count - heard > len(events):
                return state
            missing = events[len(events) - (count - heard) :]
            sent = actor.catch_up.remote(self.generation, heard, missing)
            try:
                found.append(self.ray.get(sent, timeout=self.limits.stopped_timeout))
            except self.ray.exceptions.RayError:
                return state
        return self.sharding.whole(found)

    def _sealed(self) -> dict[Any, tuple[int, list[Event]]]:
        """The shards that have their state, each with what it has heard of. Those that hang are started again."""
        sent = {actor: actor.seal.remote(self.generation) for actor in self.followers}
        self.ray.wait([*sent.values()], num_returns=len(sent), timeout=self.limits.stopped_timeout)
        found = {}
        for actor, reference in sent.items():
            try:
                heard = self.ray.get(reference, timeout=0)
            except self.ray.exceptions.GetTimeoutError:
                self.ray.kill(actor, no_restart=False)
            except self.ray.exceptions.RayError:
                continue
            else:
                if heard is not None:
                    found[actor] = heard
        return found
