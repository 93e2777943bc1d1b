"""A worker's connection to the server actor. Calls return at once; replies are received when they are needed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from torch import Tensor

from paceline.errors import PacelineError
from paceline.training.drivers.ray.job import Job
from paceline.training.drivers.ray.messages import ASK_AGAIN, Call, Push, Reply, ServerLost, WorkerReport
from paceline.training.drivers.ray.node_channel import Channel
from paceline.training.drivers.ray.node_memory import OfferedMemory
from paceline.training.drivers.ray.pieces import Pieces
from paceline.training.drivers.ray.timeline import clock_offset

ray: Any = import_module("ray")
exceptions = ray.exceptions


def node_address() -> str:
    return str(ray.util.get_node_ip_address())


@contextmanager
def lost(within_s: float) -> Iterator[None]:
    """Turns what Ray says of a server that died into `ServerLost`, and a limit of time into one line."""
    try:
        yield
    except (exceptions.RayActorError, exceptions.ObjectLostError) as error:
        raise ServerLost from error
    except (exceptions.GetTimeoutError, TimeoutError):
        raise PacelineError(f"the server did not answer within {within_s:g} s (start_timeout)") from None


class ServerLink:
    def __init__(self, server: Any, job: Job, worker: int, incarnation: int, *, near: bool = True) -> None:
        """`near`: a server of the same node is called through shared memory."""
        self.worker, self.incarnation, self.generation = worker, incarnation, ""
        self.within_s = job.answer_within_s
        self.parameters = Pieces(job.layout.size, job.layout.torch_dtype)
        self.payloads = Pieces(job.payload_size, job.layout.torch_dtype)
        self.server, self.job = server, job
        self.address = node_address()
        self.offered: OfferedMemory | None = None
        """Memory to share with a server on this node, where the system has some."""
        if near:
            with contextlib.suppress(OSError):
                self.offered = OfferedMemory(job)
        self.channel: Channel | None = None
        """The short way, if the server is on this node."""

    def _call(self, report: WorkerReport, push: Push | None = None, node: str = "") -> Call:
        return Call(self.worker, self.incarnation, self.generation, report, push, node)

    def _through_ray(self, method: Any, *arguments: Any) -> Any:
        return method.options(num_returns=1 + len(self.parameters)).remote(*arguments)

    def send_join(self) -> Any:
        """Asks to join the current server."""
        self.generation = ""
        if self.channel is not None:
            self.channel.close()
            self.channel = None
        node = str(ray.get_runtime_context().get_node_id())
        return self._through_ray(self.server.exchange, self._call(WorkerReport(), node=node))

    def joined(self, reply: Reply) -> None:
        self.generation = reply.generation
        if reply.channel is not None and self.offered is not None:
            with contextlib.suppress(OSError):
                self.channel = Channel(reply.channel, self.offered)

    def send(self, report: WorkerReport, push: Push | None = None, payload: Tensor | None = None) -> Any:
        """Sends a payload, or asks for a task. The payload may be overwritten afterwards."""
        if self.channel is None:
            pieces: list[Any] = list(self.payloads.cut(payload)) if payload is not None else []
            if not self.payloads.inline:  # the server says when it is transferred
                pieces = [[ray.put(piece)] for piece in pieces]
            return self.send_pieces(report, push, pieces)
        call = self._call(report, push)
        if push is not None and push.is_part and payload is not None:  # the payload itself may still be asked for
            return self.channel.send((call, self.payloads.cut(payload)))
        if payload is not None and payload.data_ptr() != self.channel.memory.payload.data_ptr():
            self.channel.memory.payload.copy_(payload)
        return self.channel.send((call,))

    def send_pieces(self, report: WorkerReport, push: Push | None, pieces: list[Any]) -> Any:
        return self._through_ray(self.server.exchange, self._call(report, push), *pieces)

    def receive(self, sent: Any) -> tuple[Reply, list[Any]]:
        reply, *pieces = self._get(sent)
        return reply, pieces

    def fetch(self, sequence: int, position: int) -> tuple[int, list[Any]]:
        call, version = self._call(WorkerReport()), ASK_AGAIN
        while version == ASK_AGAIN:
            if self.channel is None:
                sent = self._through_ray(self.server.fetch, call, sequence, position)
            else:
                sent = self.channel.send((call, sequence, position))
            version, *pieces = self._get(sent)
        if version < 0:
            raise ServerLost
        return version, pieces

    def clock_offset(self) -> float:
        """What to add to this process's clock to get the server's."""
        try:
            return clock_offset(lambda: ray.get(self.server.clock.remote(), timeout=self.within_s))
        except exceptions.RayError as error:
            raise ServerLost from error

    def exchange_note(self, formation: int, key: str, note: bytes | None) -> tuple[bool, bytes]:
        """Leaves a note for the other members or reads one; returns whether the formation still exists."""
        sent = self.server.exchange_note.remote(self._call(WorkerReport()), formation, key, note)
        try:
            found: tuple[bool, bytes] = ray.get(sent, timeout=self.within_s)
        except exceptions.RayError as error:
            raise ServerLost from error
        return found

    def _get(self, sent: Any) -> list[Any]:
        """The reply, and the parameters in pieces."""
        with lost(self.within_s):
            if self.channel is not None:
                answer, put = self.channel.receive(sent, self.within_s)
                if put is None:
                    return [answer]
                place, length = put
                return [answer, *self.parameters.cut(self.channel.memory.parameters[place, :length])]
            return [found for found in ray.get(sent, timeout=self.within_s) if found is not None]
