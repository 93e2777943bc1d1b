"""A member's connection to the others of its group: a process group of torch.distributed.

Members meet through the server, so no port is opened for it; the connections between them are gloo's or nccl's, at the
address that the node has in the cluster. While a member waits for the others it asks the server now and then whether
its formation still stands. Large gradients are exchanged in buckets, which begin during the backward pass.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, distributed

from paceline.strategy.instructions import Compute
from paceline.strategy.learner_state import Result
from paceline.training.drivers.ray.group_ports import bind_nccl, listening_device
from paceline.training.drivers.ray.job import Job
from paceline.training.drivers.ray.messages import Formation
from paceline.training.drivers.ray.part_exchange import NOTES, PartExchange
from paceline.training.drivers.ray.vector_parts import Piece, VectorParts, vector_pieces

ASK_EVERY_S = 1.0
PAUSE_S = 50e-6

ExchangeNote = Callable[[int, str, bytes | None], tuple[bool, bytes]]
"""Leaves a note for the other members of a formation or reads one, and says whether the formation stands."""

_abandoned: list[tuple[MemberLink, list[Any]]] = []
"""Process groups with operations that may never end: deleting one would wait for them."""


class Dissolved(Exception):
    """A member died or cannot be reached, so the formation cannot average."""


class MeetingPlace(distributed.Store):
    """The rendezvous of the members: notes stored by the server."""

    def __init__(self, exchange_note: ExchangeNote, formation: int, within_s: float) -> None:
        super().__init__()
        self.exchange_note, self.formation, self.within_s = exchange_note, formation, within_s

    def set(self, key: str, value: str | bytes) -> None:
        self._met(key, value.encode() if isinstance(value, str) else bytes(value))

    def get(self, key: str) -> bytes:
        latest_s = time.monotonic() + self.within_s
        while time.monotonic() < latest_s:
            found = self._met(key, None)
            if found:
                return found
        raise TimeoutError(f"no member left a note {key}")

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        for key in keys:
            self.get(key)

    def set_timeout(self, timeout: timedelta) -> None:
        """Ignored: the start timeout applies."""

    def _met(self, key: str, value: bytes | None) -> bytes:
        stands, found = self.exchange_note(self.formation, key, value)
        if not stands:
            raise RuntimeError("the group was dissolved")
        return found


class MemberLink:
    def __init__(
        self, formation: Formation, job: Job, exchange_note: ExchangeNote, device: torch.device, address: str
    ) -> None:
        """Raises `Dissolved` if not all members connect. `address` is the address of this node in the cluster."""
        _abandoned[:] = [(link, begun) for link, begun in _abandoned if not _all_ended(begun)]
        self.formation, self.exchange_note = formation, exchange_note
        self.weighted = job.strategy.make_exchange.weighted
        self.parts = VectorParts(job.layout, formation.members)
        dtype, size = job.layout.torch_dtype, self.parts.size
        self.gathered = torch.zeros(formation.members, size, dtype=dtype, device=device)
        self.fetched = torch.zeros(size, dtype=dtype, device=device)
        self.buckets = [self._exchange(job, [bucket], device) for bucket in job.buckets]
        rest = vector_pieces(job.layout, job.buckets)[len(self.buckets) :]
        self.exchanges = [*self.buckets, self._exchange(job, rest, device, NOTES)]
        self.mean = torch.zeros(sum(each.parts.size for each in self.exchanges), dtype=dtype, device=device)
        self._begun: list[Any] = []
        """The exchanges of this task's payload that have begun."""
        self._failure: RuntimeError | None = None
        place = MeetingPlace(exchange_note, formation.number, job.answer_within_s)
        options = _options(job, address)
        try:
            self.group = _kind(job)(place, formation.rank, formation.members, options)
        except Exception as error:
            raise Dissolved from error

    def _exchange(self, job: Job, pieces: list[Piece], device: torch.device, notes: int = 0) -> PartExchange:
        parts = VectorParts(job.layout, self.formation.members, pieces)
        return PartExchange(parts, self.formation.rank, job.layout.torch_dtype, device, notes)

    def gather(self, part: Tensor, out: Tensor) -> None:
        """Assembles a vector from the parts of all members."""
        self.fetched.copy_(part)
        self._begin(lambda: self.group._allgather_base(self.gathered.view(-1), self.fetched))
        self._finish()
        for rank in range(self.formation.members):
            self.parts.put(rank, self.gathered[rank], out)

    def start_bucket(self, payload: Tensor, bucket: int) -> None:
        """Begins to exchange a bucket that is complete. A failure is reported by `average`."""
        exchange = self.buckets[bucket]
        with torch.no_grad():
            exchange.put(payload)
        self._begin(lambda: exchange.begin(self.group))

    def average(self, payload: Tensor, task: Compute, result: Result, finite: bool) -> Tensor | None:
        """This member's part of the mean of all payloads; None if one of them is not finite."""
        last = self.exchanges[-1]
        for exchange in self.exchanges[len(self._begun) :]:
            exchange.put(payload)
            if exchange is last:
                exchange.put_notes([task.batches[0], result.samples, result.steps, finite])
            self._begin(functools.partial(exchange.begin, self.group))
        self._finish()
        found = last.notes()
        if not all(finite for *_, finite in found):
            return None
        order = sorted(range(len(found)), key=lambda rank: found[rank][0])
        weights = [found[rank][1] / found[rank][2] if self.weighted else 1.0 for rank in order]
        first = 0
        for exchange in self.exchanges:
            exchange.mean(order, weights, self.mean[first : first + exchange.parts.size])
            first += exchange.parts.size
        return self.mean

    def _begin(self, operation: Callable[[], Any]) -> None:
        if self._failure is None:
            try:
                self._begun.append(operation())
            except RuntimeError as error:
                self._failure = error

    def _finish(self) -> None:
        """Waits for what has begun for as long as the formation exists."""
        begun, self._begun = self._begun, []
        try:
            for work in begun:
                while not self._is_done(work):
                    if not self.exchange_note(self.formation.number, "", None)[0]:
                        raise Dissolved
            if self._failure is not None:
                raise self._failure
        except BaseException as error:
            if not _all_ended(begun):
                _abandoned.append((self, begun))
            if isinstance(error, RuntimeError):
                raise Dissolved from error
            raise

    def _is_done(self, work: Any) -> bool:
        """Waits for at most the interval at which the server is asked."""
        if self.mean.is_cuda:  # to wait for nccl would end the process group after that time
            latest_s = time.monotonic() + ASK_EVERY_S
            while not work.is_completed() and time.monotonic() < latest_s:
                time.sleep(PAUSE_S)
            return bool(work.is_completed() and work.wait())
        try:
            return bool(work.wait(timedelta(seconds=ASK_EVERY_S)))
        except RuntimeError:
            if work.is_completed():
                raise
            return False


def _all_ended(begun: list[Any]) -> bool:
    return all(work.is_completed() for work in begun)


def _kind(job: Job) -> Any:
    return distributed.ProcessGroupNCCL if job.collective == "nccl" else distributed.ProcessGroupGloo


def _options(job: Job, address: str) -> Any:
    """How the process group connects: at the node's address in the cluster, on a port of the range."""
    kind = _kind(job)
    if job.collective == "nccl":
        bind_nccl(address)
        options = kind.Options()
    else:
        options = kind._Options()
        ports = range(*job.ports)
        options._devices = [listening_device(lambda: kind.create_device(hostname=address), address, ports)]
    options._timeout = timedelta(seconds=job.answer_within_s)
    return options
