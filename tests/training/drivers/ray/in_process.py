"""The actors of the Ray driver as plain objects and threads of this process: all of it but Ray."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from torch import Tensor

from paceline.step.build import assemble, load_data
from paceline.step.step import Parts
from paceline.strategy.learner import Learner
from paceline.strategy.strategy import Strategy
from paceline.training.drivers.ray.job import Job
from paceline.training.drivers.ray.messages import ASK_AGAIN, Call, Push, Reply, ServerLost, ServerState, WorkerReport
from paceline.training.drivers.ray.pieces import Pieces
from paceline.training.drivers.ray.server import Server
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
    """Where the server is."""

    def __init__(self, job: Job) -> None:
        self.server = Server(job)


class InProcessWorker(Worker):
    def _connect(self, server: Any, incarnation: int, objects: Any) -> Any:
        return Link(server, self.job, self.number, incarnation)


def job_of(workload: Workload, strategy: Strategy, workers: int, **changes: Any) -> tuple[Job, ServerState]:
    learner = Learner(parts_of(workload), strategy, workers)
    job = Job(strategy, learner.layout, workload, workers, 1, "cpu", learner.payload_size, **changes)
    return job, ServerState(learner.initial())


def parts_of(workload: Workload) -> Parts:
    return assemble(workload, load_data(workload), CPU)
