"""A worker's connection to a server with several shards: the server says what to do, vectors go to and from all shards.

A payload counts when every shard has its slice of it, and parameters are used when every shard has given its slice of
the version that the server named. Threads wait for both, so that a worker may compute meanwhile.
"""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from torch import Tensor

from paceline.errors import PacelineError
from paceline.training.drivers.ray.job import Job
from paceline.training.drivers.ray.messages import Push, Reply, ServerActors, ServerLost, WorkerReport
from paceline.training.drivers.ray.pieces import Array, Pieces
from paceline.training.drivers.ray.server_link import ServerLink, lost, ray
from paceline.training.drivers.ray.sharding import Sharding

CALLS_AT_ONCE = 2
"""A worker that computes may have asked for its next task."""

Answer = tuple[Reply, list[Array]]


class ShardedLink:
    def __init__(self, link: ServerLink, shards: tuple[tuple[Any, ...], ...], job: Job) -> None:
        """`link` is to the server, which has nothing of the vectors; each shard comes with its replica, if any."""
        self.link, self.shards, self.slices = link, shards, Sharding(job).slices
        self.worker, self.within_s = link.worker, job.answer_within_s
        self.parameters = Pieces(job.layout.size, job.layout.torch_dtype)
        self.address, self.offered = link.address, link.offered
        self._threads = ThreadPoolExecutor(CALLS_AT_ONCE)

    @property
    def generation(self) -> str:
        return self.link.generation

    def send_join(self) -> Future[Answer]:
        self._threads.shutdown(wait=False)  # they may wait for a server that is gone
        self._threads = ThreadPoolExecutor(CALLS_AT_ONCE)
        return self._threads.submit(self._answer, self.link.send_join())

    def joined(self, reply: Reply) -> None:
        self.link.joined(reply)

    def send(
        self, report: WorkerReport, push: Push | None = None, payload: Tensor | None = None
    ) -> Future[Answer]:  # fmt: skip
        """Sends a payload, or asks for a task. The payload may be overwritten afterwards."""
        delivered: list[Any] = []
        if push is not None and payload is not None:
            whole, generation = payload.detach().cpu().numpy(), _of_server(self.generation)
            for piece, actors in zip(self.slices, self.shards, strict=True):
                reference = ray.put(whole[piece])
                about = generation, self.worker, push.sequence
                delivered += [actor.deliver.remote(*about, [reference]) for actor in actors]
        # The server is called when all of them have answered: Ray waits for its arguments.
        return self._threads.submit(self._answer, self.link.send_pieces(report, push, delivered))

    def receive(self, sent: Future[Answer]) -> Answer:
        return sent.result()

    def fetch(self, sequence: int, position: int) -> tuple[int, list[Array]]:
        version, _ = self.link.fetch(sequence, position)
        return version, self._collect(self.generation, sequence, version)

    def clock_offset(self) -> float:
        return self.link.clock_offset()

    def exchange_note(self, formation: int, key: str, note: bytes | None) -> tuple[bool, bytes]:
        return self.link.exchange_note(formation, key, note)

    def _answer(self, sent: Any) -> Answer:
        reply, _ = self.link.receive(sent)
        if reply.task is None or 0 not in reply.task.fetches:
            return reply, []
        return reply, self._collect(reply.generation, reply.task.sequence, reply.version)

    def _collect(self, generation: str, sequence: int, version: int) -> list[Array]:
        """The parameters of a version, a slice from each shard."""
        latest_s = time.monotonic() + self.within_s
        found: list[Array | None] = [None] * len(self.shards)
        while missing := [number for number, piece in enumerate(found) if piece is None]:
            if time.monotonic() > latest_s:
                raise PacelineError(f"the server's shards did not answer within {self.within_s:g} s (start_timeout)")
            asked = (_of_server(generation), self.worker, sequence, version)
            sent = [self.shards[number][0].collect.options(num_returns=2).remote(*asked) for number in missing]
            with lost(self.within_s):
                if not all(ray.get([stands for stands, _ in sent], timeout=self.within_s)):
                    raise ServerLost
                pieces = ray.get([piece for _, piece in sent], timeout=self.within_s)  # all transfers at once
            for number, piece in zip(missing, pieces, strict=True):
                found[number] = piece
        return [piece for piece in found if piece is not None]


def link_to(servers: ServerActors, job: Job, worker: int, incarnation: int) -> ServerLink | ShardedLink:
    """A worker's connection to the server, or to the server and its shards."""
    if not servers.shards:
        return ServerLink(servers.server, job, worker, incarnation)
    link = ServerLink(servers.server, Sharding(job).of_server, worker, incarnation, near=False)
    return ShardedLink(link, servers.shards, job)


def _of_server(generation: str) -> str:
    """The server's own generation, of the one that it gave this worker when it joined."""
    return generation.partition("-")[0]
