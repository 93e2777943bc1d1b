"""The actors of the Ray driver as plain objects and threads of this process: all of it but Ray."""

from __future__ import annotations

import math
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from paceline.step.build import assemble, load_data
from paceline.step.step import Parts
from paceline.strategy.learner import Learner
from paceline.strategy.strategy import Strategy
from paceline.training.drivers.ray.job import Job
from paceline.training.drivers.ray.messages import ASK_AGAIN, Call, Push, Reply, ServerLost, ServerState, WorkerReport
from paceline.training.drivers.ray.pieces import Pieces
from paceline.training.drivers.ray.server import Server
from paceline.training.drivers.ray.shard import ServerShard
from paceline.training.drivers.ray.shard_link import ShardedLink
from paceline.training.drivers.ray.sharding import Sharding
from paceline.training.drivers.ray.worker import Worker
from paceline.workload import Workload
from tests.contract.small_training import CPU


class Link:
    """As a `ServerLink`; `place.server` may be replaced, as Ray replaces a server that died."""

    def __init__(self, place: Place, job: Job, worker: int, incarnation: int) -> None:
        self.place, self.worker, self.incarnation, self.generation = place, worker, incarnation, ""
        self.parameters = Pieces(job.layout.size, job.layout.torch_dtype)
        self.payloads = Pieces(job.payload_size, job.layout.torch_dtype)
        self.threads = ThreadPoolExecutor(2)
        self.address = "127.0.0.1"
        self.offered = None

    def _call(self, report: WorkerReport, push: Push | None = None) -> Call:
        return Call(self.worker, self.incarnation, self.generation, report, push)

    def send_join(self) -> Any:
        self.generation = ""
        return self.send(WorkerReport())

    def joined(self, reply: Reply) -> None:
        self.generation = reply.generation

    def send(self, report: WorkerReport, push: Push | None = None, payload: Tensor | None = None) -> Any:
        pieces = [piece.copy() for piece in self.payloads.cut(payload)] if payload is not None else []
        return self.send_pieces(report, push, pieces)

    def send_pieces(self, report: WorkerReport, push: Push | None, pieces: list[Any]) -> Any:
        server = self.place.server
        return server, self.threads.submit(server.exchange, self._call(report, push), *pieces)

    def receive(self, sent: tuple[Server, Future[Any]]) -> tuple[Reply, list[Any]]:
        server, answer = sent
        reply, *pieces = answer.result(30)
        pieces = [piece for piece in pieces if piece is not None]
        if server is not self.place.server:  # whatever a server answers that is dead by now
            raise ServerLost
        return reply, pieces

    def clock_offset(self) -> float:
        return 0.0

    def exchange_note(self, formation: int, key: str, note: bytes | None) -> tuple[bool, bytes]:
        return self.place.server.exchange_note(self._call(WorkerReport()), formation, key, note)

    def fetch(self, sequence: int, position: int) -> tuple[int, list[Any]]:
        version = ASK_AGAIN
        while version == ASK_AGAIN:
            version, *pieces = self.place.server.fetch(self._call(WorkerReport()), sequence, position)
        pieces = [piece for piece in pieces if piece is not None]
        if version < 0:
            raise ServerLost
        return version, pieces


class Place:
    """Where the server is, and its shards, each `copies` times."""

    def __init__(self, job: Job, copies: int = 1) -> None:
        self.job, self.sharding = job, Sharding(job)
        self.server = Server(job)
        self.shards: list[list[ServerShard]] = []
        if job.shards > 1:
            self.shards = [
                [ServerShard(self.sharding.of_shard(number)) for _ in range(copies)] for number in range(job.shards)
            ]

    def begin(self, state: ServerState, generation: str = "first") -> None:
        """A new server begins, and its shards."""
        if not self.shards:
            self.server.begin(state, math.inf)
            return
        for shards, piece in zip(self.shards, self.sharding.states_of_shards(state), strict=True):
            for shard in shards:
                shard.begin(generation, piece)
        self.server = Server(self.sharding.of_server)
        followers = [handle for handles in self.handles() for handle in handles]
        self.server.begin(self.sharding.state_of_server(state), math.inf, followers, generation, True)

    def handles(self) -> tuple[tuple[Remote, ...], ...]:
        return tuple(tuple(Remote(shards, copy) for copy in range(len(shards))) for shards in self.shards)

    def parameters(self) -> Tensor:
        if not self.shards:
            return torch.from_numpy(self.server.current_parameters()[1])
        return torch.cat([shards[0].serving.store.current for shards in self.shards])


class Remote:
    """A handle as Ray's, whose calls are made at once; it stays that of an actor that was started again."""

    def __init__(self, actors: list[Any], number: int) -> None:
        self.actors, self.number = actors, number

    def __getattr__(self, method: str) -> Any:
        def remote(*arguments: Any) -> Any:
            return getattr(self.actors[self.number], method)(*(a[0] if _is_reference(a) else a for a in arguments))

        return SimpleNamespace(remote=remote, options=lambda **_: SimpleNamespace(remote=remote))


def _is_reference(argument: Any) -> bool:
    return isinstance(argument, list) and len(argument) == 1 and isinstance(argument[0], np.ndarray)


class InProcessWorker(Worker):
    def _connect(self, server: Any, incarnation: int, objects: Any) -> Any:
        if not server.shards:
            return Link(server, self.job, self.number, incarnation)
        link: Any = Link(server, server.sharding.of_server, self.number, incarnation)
        return ShardedLink(link, server.handles(), self.job)


def job_of(workload: Workload, strategy: Strategy, workers: int, **changes: Any) -> tuple[Job, ServerState]:
    learner = Learner(parts_of(workload), strategy, workers)
    job = Job(strategy, learner.layout, workload, workers, 1, "cpu", learner.payload_size, **changes)
    return job, ServerState(learner.initial())


def parts_of(workload: Workload) -> Parts:
    return assemble(workload, load_data(workload), CPU)
