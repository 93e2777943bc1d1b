"""The memory that launcher, server and workers share: what is in it, and where.

It has no name and belongs to whoever has it open, so that nothing is left behind however the processes end.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from paceline.data.ring import anonymous_file
from paceline.errors import PacelineError
from paceline.step.placement import free_memory_bytes
from paceline.train.local.words import CONTROL_WORDS, LINE, MADE_WORDS, SLOT_WORDS, TASK_WORDS

_PAGE = 4096
STALENESS_BINS = 256
"""A payload older than that counts as this old."""
REFUSALS_KEPT = 64
SPANS_KEPT = 256
"""Of each process."""
MESSAGE_BYTES = 2048
EPOCHS_SCORED = 6
"""The launcher may still have to read an epoch's scores when workers are four further."""
SCORES = 6
"""Epoch, loss sum, samples, right, right among the first, classified."""


@dataclass(frozen=True)
class StateTensor:
    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Sizes:
    """From them every process computes the same places."""

    workers: int
    groups: int
    snapshots: bool
    """Whether a group's members read a copy of the parameters that was made for their round."""
    pulled: bool
    """Whether the server wants to know the very parameters a payload was computed on."""
    numbers: int
    """Of the vector that is exchanged."""
    dtype: str
    state: tuple[StateTensor, ...]
    """Of the server's optimizer."""
    corrections: tuple[StateTensor, ...]
    """What the correction keeps for each group."""
    batches: int
    """Of an epoch."""
    epochs: int
    longest: int
    """Batches of a task at most."""
    events: int = 0
    """Words for the record of what happened, to repeat it."""
    ahead: int = 2
    """Tasks that a worker may have before it."""
    own_updates: bool = False
    """Whether workers make updates of their own payloads, and the server is told afterwards."""
    shards: int = 1
    """Processes that make an update together: the server, and others."""

    @property
    def header_words(self) -> int:
        return 2 * self.groups + STALENESS_BINS + 1

    @property
    def task_words(self) -> int:
        return TASK_WORDS + 2 * self.longest

    @property
    def order_words(self) -> int:
        """An update is made of what lies in the slots, at most: see `shard_orders`."""
        return 4 + 9 * 2 * self.workers if self.shards > 1 else 0

    @property
    def made(self) -> int:
        """So many updates the server need not have heard of, and the last one."""
        return self.workers * self.ahead + 1 if self.own_updates else 0


@dataclass(frozen=True, eq=False)
class Draft:
    """Where a process writes the version that it makes, where workers make updates themselves."""

    parameters: Tensor
    state: dict[str, Tensor]
    kept: dict[str, Tensor]
    """Of the correction, for the group whose payload it is."""


_DTYPES = {"float32": torch.float32, "float64": torch.float64, "int64": torch.int64}


class _Places:
    """Hands out one piece of the memory after another."""

    def __init__(self) -> None:
        self.end = 0

    def take(self, size_bytes: int) -> int:
        start = self.end
        self.end = -(-(start + size_bytes) // _PAGE) * _PAGE
        return start


class Memory:
    """The shared memory as words, arrays and tensors. Without a descriptor it is new, and all zero."""

    def __init__(self, sizes: Sizes, descriptor: int | None = None) -> None:
        self.sizes = sizes
        self._bytes: mmap.mmap | None = None
        size_bytes = self._lay_out(_Places())
        if descriptor is None:
            _check_room(size_bytes, sizes)
            descriptor = anonymous_file("paceline-parameters", size_bytes)
        self.descriptor, self.size_bytes = descriptor, size_bytes
        try:
            self._bytes = mmap.mmap(descriptor, size_bytes)
        except BaseException:
            os.close(descriptor)
            raise
        self._lay_out(_Places())

    def _lay_out(self, places: _Places) -> int:
        """Twice: for the size, and then for the views."""
        s = self.sizes
        two = range(2)
        self.control = self._words(places, CONTROL_WORDS)
        self.readers = self._words(places, LINE * (s.workers + 1))
        """What each worker, and last the launcher, is copying: the version and 1, or 0."""
        self.asleep = self._words(places, LINE * (s.workers + 1 + s.shards))
        """Whether each worker, the server, the launcher and the server's other shards want to be woken."""
        self.slots = self._words(places, SLOT_WORDS * s.workers)
        self.mailboxes = self._integers(places, s.workers, s.ahead, s.task_words)
        self.fetched = self._integers(places, s.workers, 2, s.longest + 1)
        """The versions that a payload's fetches brought."""
        self.made = self._words(places, s.made * MADE_WORDS)
        """Who made each of the last versions, of what."""
        self.shards = self._words(places, LINE * s.shards)
        self.order = self._integers(places, s.order_words)
        """What the shards of the server are to do."""
        self.headers = self._integers(places, 2, s.header_words)
        self.marks = self._integers(places, 2, s.batches)
        self.totals = self._integers(places, s.epochs, 3)
        self.refusals = self._integers(places, REFUSALS_KEPT, 4)
        self.scores = self._floats(places, s.workers, EPOCHS_SCORED, SCORES)
        self.messages = self._integers(places, s.workers + s.shards, MESSAGE_BYTES // 8)
        self.events = self._integers(places, s.events)
        self.spans = self._integers(places, s.workers + s.shards, SPANS_KEPT, 3)
        self.parameters = self._twice(lambda: self._tensor(places, (s.numbers,), s.dtype))
        self.states = self._twice(lambda: self._tensors(places, s.state))
        self.corrections = [
            self._twice(lambda: self._tensors(places, s.corrections)) for _ in range(s.groups if s.corrections else 0)
        ]
        self.drafts = [self._draft(places) for _ in range(s.workers + 1 if s.own_updates else 0)]
        """Of each worker, and of the server."""
        self.epoch_parameters = [self._tensor(places, (s.numbers,), s.dtype) for _ in two]
        self.snapshots = [self._tensor(places, (s.numbers,), s.dtype) for _ in range(s.groups if s.snapshots else 0)]
        self.snapshot_versions = self._words(places, s.groups)
        """The version a group's snapshot is of, and 1; 0 while it is written."""
        self.given_up = self._words(places, LINE * s.groups)
        """Of each group the last sum that its members need not wait for any more."""
        self.payloads = [[self._tensor(places, (s.numbers,), s.dtype) for _ in two] for _ in range(s.workers)]
        self.pulled = [
            [self._tensor(places, (s.numbers,), s.dtype) for _ in two] for _ in range(s.workers if s.pulled else 0)
        ]
        return places.end

    def _twice(self, make: Callable[[], Any]) -> list[Any]:
        """For even and for odd versions, unless they are written elsewhere and carried over."""
        first = make()
        return [first, first if self.sizes.own_updates else make()]

    def _draft(self, places: _Places) -> Draft:
        s = self.sizes
        parameters = self._tensor(places, (s.numbers,), s.dtype)
        return Draft(parameters, self._tensors(places, s.state), self._tensors(places, s.corrections))

    def _tensors(self, places: _Places, described: tuple[StateTensor, ...]) -> dict[str, Tensor]:
        return {t.name: self._tensor(places, t.shape, t.dtype) for t in described}

    def _words(self, places: _Places, count: int) -> memoryview:
        start = places.take(8 * count)
        return memoryview(b"") if self._bytes is None else memoryview(self._bytes)[start : start + 8 * count].cast("q")

    def _array(self, places: _Places, kind: type, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        start, count = places.take(8 * prod(shape)), prod(shape)
        if self._bytes is None:
            return np.empty(0, kind)
        return np.frombuffer(self._bytes, kind, count, start).reshape(shape)

    def _integers(self, places: _Places, *shape: int) -> npt.NDArray[Any]:
        return self._array(places, np.int64, shape)

    def _floats(self, places: _Places, *shape: int) -> npt.NDArray[Any]:
        return self._array(places, np.float64, shape)

    def _tensor(self, places: _Places, shape: tuple[int, ...], dtype: str) -> Tensor:
        kind, count = _DTYPES[dtype], prod(shape)
        start = places.take(kind.itemsize * count)
        if self._bytes is None:
            return torch.empty(0)
        return torch.frombuffer(self._bytes, dtype=kind, count=count, offset=start).reshape(shape)

    def tell(self, who: int, message: str) -> None:
        """Leaves a line for the launcher; `who` is as in `Settings.number`."""
        text = message.encode()[: MESSAGE_BYTES - 8]
        place = self.messages[who].view(np.uint8)
        place[8 : 8 + len(text)] = np.frombuffer(text, np.uint8)
        self.messages[who, 0] = len(text)

    def told(self, who: int) -> str:
        length = int(self.messages[who, 0])
        return bytes(self.messages[who].view(np.uint8)[8 : 8 + length]).decode(errors="replace")

    def forget(self, who: int) -> None:
        self.messages[who, 0] = 0

    def close(self) -> None:
        """Gives the memory back; the views must no longer be used."""
        os.close(self.descriptor)


def _check_room(size_bytes: int, sizes: Sizes) -> None:
    room = free_shared_bytes()
    if size_bytes > room:
        raise PacelineError(
            f"too little memory to share: {sizes.workers} workers with {sizes.numbers:,} parameters need "
            f"{size_bytes / 2**30:.2f} GiB, {room / 2**30:.2f} GiB are free; use fewer workers"
        )


def free_shared_bytes() -> int:
    """What may be taken: the machine's free memory, or what its control group leaves."""
    room = free_memory_bytes(torch.device("cpu"))
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        try:
            with open(limit) as most, open(used) as now:  # noqa: PTH123
                text = most.read().strip()
                if text.isdigit():
                    room = min(room, int(text) - int(now.read()))
        except (OSError, ValueError):
            continue
    return room
