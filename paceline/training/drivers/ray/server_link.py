"""A worker's connection to the server actor. Calls return at once; what they return is received when it is needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from torch import Tensor

from paceline.errors import PacelineError
from paceline.training.drivers.ray.job import Job
from paceline.training.drivers.ray.messages import Call, Push, Reply, ServerLost, WorkerReport
from paceline.training.drivers.ray.pieces import Pieces

ray: Any = import_module("ray")
exceptions = ray.exceptions


def node_address() -> str:
    return str(ray.util.get_node_ip_address())


class ServerLink:
    def __init__(self, server: Any, job: Job, worker: int, incarnation: int) -> None:
        self.worker, self.incarnation, self.generation = worker, incarnation, ""
        self.within_s = job.answer_within_s
        self.parameters = Pieces(job.layout.size, job.layout.torch_dtype)
        self.payloads = Pieces(job.payload_size, job.layout.torch_dtype)
        self._exchange = server.exchange.options(num_returns=1 + len(self.parameters))
        self._fetch = server.fetch.options(num_returns=1 + len(self.parameters))

    def _call(self, report: WorkerReport, push: Push | None = None) -> Call:
        return Call(self.worker, self.incarnation, self.generation, report, push)

    def send(self, report: WorkerReport, push: Push | None = None, payload: Tensor | None = None) -> Any:
        """Sends a payload, or only asks for a task; the payload may be overwritten afterwards."""
        pieces = self.payloads.cut(payload) if payload is not None else ()
        return self._exchange.remote(self._call(report, push), *pieces)

    def receive(self, sent: Any) -> tuple[Reply, list[Any]]:
        reply, *pieces = self._get(sent)
        return reply, pieces

    def fetch(self, sequence: int, position: int) -> tuple[int, list[Any]]:
        version, *pieces = self._get(self._fetch.remote(self._call(WorkerReport()), sequence, position))
        if version < 0:
            raise ServerLost
        return version, pieces

    def _get(self, sent: Any) -> list[Any]:
        try:
            found: list[Any] = ray.get(sent, timeout=self.within_s)
        except (exceptions.RayActorError, exceptions.ObjectLostError) as error:
            raise ServerLost from error
        except exceptions.GetTimeoutError:
            raise PacelineError(f"the server did not answer within {self.within_s:g} s (start_timeout)") from None
        return found
