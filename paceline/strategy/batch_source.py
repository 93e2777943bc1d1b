"""Any batch of any epoch by its number, wherever the samples are; what workers that share an epoch need."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Iterable
from dataclasses import replace

from torch import Tensor

from paceline.step.feeder import DEPTH, FileFeeder, HostFeeder, ResidentFeeder, SampleFeeder
from paceline.step.order import Order
from paceline.step.phase import Batch
from paceline.step.randomness import mix
from paceline.step.step import Parts

_OWN_PASS = 0x0417  # keeps the orders of workers with passes of their own apart
KEPT_ORDERS_BYTES = 256 << 20

Key = tuple[int, int]
"""Epoch and number of a batch."""


class BatchSource:
    """With passes of their own, batch i of worker w is number w * batches + i, in an order of that worker."""

    def __init__(self, parts: Parts, full_pass_per_worker: bool) -> None:
        assert isinstance(parts.feeder, ResidentFeeder | HostFeeder | SampleFeeder | FileFeeder)
        self.feeder, self.full_pass_per_worker = parts.feeder, full_pass_per_worker
        self.order: Order = parts.feeder.order
        assert self.order.workers == 1, "batches are shared by number"
        kept = max(2, KEPT_ORDERS_BYTES // (8 * self.order.samples))
        self._batches = functools.lru_cache(kept)(functools.partial(_batches, self.order, full_pass_per_worker))
        self._requested: deque[Key] = deque()
        self._prepared: tuple[Key, Batch] | None = None

    def position(self, number: int) -> tuple[int, int]:
        """The worker whose pass a batch belongs to, and its position in that pass."""
        return divmod(number, self.order.batches) if self.full_pass_per_worker else (0, number)

    def indices(self, epoch: int, number: int) -> Tensor:
        """The samples of a batch."""
        worker, position = self.position(number)
        return self._batches(worker, epoch)[position]

    def expect(self, epoch: int, numbers: Iterable[int]) -> None:
        """These will be asked for next, in this order; files are read ahead."""
        if isinstance(self.feeder, FileFeeder):
            for number in numbers:
                if len(self._requested) < DEPTH:
                    self._request(self.feeder, (epoch, number))

    def prepare(self, epoch: int, number: int) -> None:
        """Makes a batch that will be asked for next, since there is time."""
        self._prepared = (epoch, number), self.batch(epoch, number)

    def batch(self, epoch: int, number: int) -> Batch:
        """The batch, prepared, on the device."""
        prepared, self._prepared = self._prepared, None
        feeder, key = self.feeder, (epoch, number)
        if prepared is not None and prepared[0] == key:
            return prepared[1]
        if isinstance(feeder, SampleFeeder) and feeder.part.chunk_rows:
            worker, position = self.position(number)
            later = min(position + self.order.window // self.order.batch + 1, self.order.batches - 1)
            feeder.part.expect(self._batches(worker, epoch)[later])
        if not isinstance(feeder, FileFeeder):
            return feeder.read(self.indices(epoch, number), epoch)
        if key not in self._requested:
            self._request(feeder, key)
        while True:
            read, target = feeder.opened().receive()
            if self._requested.popleft() == key:
                break
        # The reader reuses its memory for a later request.
        return feeder.prepare(read.clone().to(feeder.device), target.clone().to(feeder.device))

    def _request(self, feeder: FileFeeder, key: Key) -> None:
        if len(self._requested) == DEPTH:  # what was expected did not come; the oldest is given up
            feeder.opened().receive()
            self._requested.popleft()
        feeder.opened().request(self.indices(*key), key[0])
        self._requested.append(key)

    def close(self) -> None:
        self._requested.clear()
        self.feeder.close()


def _batches(order: Order, own_pass: bool, worker: int, epoch: int) -> tuple[Tensor, ...]:
    """The samples of every batch of an epoch."""
    if own_pass:
        order = replace(order, seed=mix(_OWN_PASS, order.seed, worker))
    batches: tuple[Tensor, ...] = order.permutation(epoch).split(order.batch)
    return batches
