"""The memory that launcher, server and workers share: what is in it, and where.

It has no name and belongs to whoever has it open, so that nothing is left behind however the processes end.
"""

from __future__ import annotations

import mmap
import os
import platform
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from paceline.data.ring import anonymous_file
from paceline.errors import PacelineError
from paceline.free_memory import free_memory_bytes
from paceline.training.drivers.local.fields import CONTROL_WORDS, LINE, SLOT_WORDS, ControlField, HeaderField, SlotField

_PAGE = 4096
STALENESS_BINS = 256
"""A payload older than that counts as this old."""
REFUSALS_KEPT = 64
EVENT_WORDS = 4
UPDATE_WORDS = 4
SPANS_KEPT = 256
"""Spans of each process."""
MESSAGE_BYTES = 2048
SCORES = 6
"""Write count, loss sum, samples, correct, correct among the top ones, classified."""


@dataclass(frozen=True)
class StateTensor:
    name: str
    shape: tuple[int, ...]
    dtype: str

    @staticmethod
    def of(name: str, tensor: Tensor) -> StateTensor:
        return StateTensor(name, tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))


@dataclass(frozen=True)
class Sizes:
    """Sizes from which every process computes the same addresses."""

    workers: int
    groups: int
    numbers: int
    """Length of the vector of parameters and buffers."""
    payload: int
    """Length of a payload."""
    dtype: str
    state: tuple[StateTensor, ...]
    """State of the server's optimizer."""
    corrections: tuple[StateTensor, ...]
    """State of the correction, for each group."""
    batches: int
    """Per epoch."""
    epochs: int
    longest: int
    """Batches of a task at most."""
    snapshots: bool = False
    """Whether a group's members read a copy of the parameters that was made for their round."""
    fetched: bool = False
    """Whether an update looks at the very parameters that a payload was computed on."""
    events: int = 0
    """Words for the record of what happened, to replay it."""
    ahead: int = 2
    """Tasks that a worker may have in advance."""
    places: int = 2
    """Places for each worker's payloads, which it uses in turn."""
    workers_commit: bool = False
    """Whether workers make updates by themselves, and the server is told afterwards."""

    @property
    def header_words(self) -> int:
        return self.staleness_word + STALENESS_BINS

    @property
    def correction_word(self) -> int:
        """Where a header has the correction buffer of each group."""
        return HeaderField.ROUNDS + self.groups

    @property
    def staleness_word(self) -> int:
        """Where it has the staleness histogram."""
        return HeaderField.ROUNDS + 2 * self.groups

    @property
    def task_words(self) -> int:
        """Of an entry of a mailbox: 5 bytes per number, and some around them."""
        return 20 + 2 * self.longest


class _Allocator:
    """Assigns consecutive pieces of the memory."""

    def __init__(self) -> None:
        self.end = 0

    def take(self, size_bytes: int) -> int:
        start = self.end
        self.end = -(-(start + size_bytes) // _PAGE) * _PAGE
        return start


class SharedMemory:
    """The shared memory as words, arrays and tensors. Without a descriptor it is new, and all zero."""

    def __init__(self, sizes: Sizes, descriptor: int | None = None) -> None:
        self.sizes, self.staleness_word = sizes, sizes.staleness_word
        self._bytes: mmap.mmap | None = None
        size_bytes = self._lay_out(_Allocator())
        if descriptor is None:
            check_platform()
            _check_room(size_bytes, sizes)
            descriptor = anonymous_file("paceline-parameters", size_bytes)
        self.descriptor, self.size_bytes = descriptor, size_bytes
        try:
            self._bytes = mmap.mmap(descriptor, size_bytes)
        except BaseException:
            os.close(descriptor)
            raise
        self._lay_out(_Allocator())
        self.mailbox_bytes = self.mailboxes.cast("B")

    def _lay_out(self, room: _Allocator) -> int:
        """Called twice: to compute the size, and to create the views."""
        s = self.sizes
        self.control = self._words(room, CONTROL_WORDS)
        self.asleep = self._words(room, LINE * (s.workers + 2))
        """Whether each worker, the server and the launcher want to be woken."""
        self.slots = self._words(room, SLOT_WORDS * s.workers)
        self.groups = self._words(room, LINE * s.groups)
        self.mailboxes = self._words(room, s.workers * s.ahead * s.task_words)
        self.fetched_versions = self._array(room, "int64", s.workers, 2, s.longest + 1)
        """The versions that each payload's fetches returned."""
        self.log_rows = s.workers * (s.ahead + 1) + 2
        """Each event ends a task that was given, so the server is behind by no more than those."""
        self.log = self._words(room, self.log_rows * EVENT_WORDS)
        self.headers = [self._words(room, s.header_words) for _ in range(2)]
        self.batch_status = self._array(room, "int64", 2, s.batches)
        self.batch_words = [memoryview(row) for row in self.batch_status]
        """The same, faster to write a word at a time."""
        self.totals = self._array(room, "int64", s.epochs, 3)
        self.refusals = self._array(room, "int64", REFUSALS_KEPT, 4)
        self.scores = self._array(room, "float64", s.workers, s.epochs, SCORES)
        self.messages = self._array(room, "int64", s.workers + 1, MESSAGE_BYTES // 8)
        self.events = self._words(room, s.events)
        self.spans = self._array(room, "int64", s.workers + 1, SPANS_KEPT, 3)
        self.parameters = self._two_vectors(room, s.numbers)
        """Snapshots."""
        self.states = self._two_states(room, s.state)
        self.update_rows = s.workers * s.places + 1 if s.workers_commit else 0
        self.updates = self._words(room, UPDATE_WORDS * self.update_rows)
        """Of the newest updates, of version V in row V % rows: the gradient's place, epoch, closed batches and turn."""
        self.place_versions = self._words(room, s.workers * s.places if s.workers_commit else 0)
        """The version that was made of the gradient in each worker's places; 0: none was, or it is overwritten."""
        groups, workers = range(s.groups), range(s.workers)
        self.corrections = [self._two_states(room, s.corrections) for _ in groups if s.corrections]
        self.epoch_parameters = self._two_vectors(room, s.numbers)
        self.snapshots = [self._vector(room, s.numbers) for _ in groups if s.snapshots]
        longest = max(s.payload, s.numbers) if s.workers_commit else s.payload
        self.places = [self._vector(room, longest) for _ in range(s.workers * s.places)]
        self.payloads = [[p[: s.payload] for p in self.places[w * s.places : (w + 1) * s.places]] for w in workers]
        self.gradients = [place[: s.numbers] for place in self.places]
        """The same places: where workers commit, an update's gradient replaces a payload that it was made of."""
        self.fetched = [self._two_vectors(room, s.numbers) for _ in workers if s.fetched]
        return room.end

    def _array(self, room: _Allocator, kind: str, *shape: int) -> npt.NDArray[Any]:
        count = prod(shape)
        start = room.take(np.dtype(kind).itemsize * count)
        if self._bytes is None or not count:
            return np.empty(shape if self._bytes is not None else 0, kind)
        return np.frombuffer(self._bytes, kind, count, start).reshape(shape)

    def _words(self, room: _Allocator, count: int) -> memoryview:
        """As a memoryview, whose words are read and written faster than those of an array."""
        return memoryview(self._array(room, "int64", count))  # type: ignore[arg-type]

    def _two_vectors(self, room: _Allocator, count: int) -> list[Tensor]:
        return [self._vector(room, count) for _ in range(2)]

    def _vector(self, room: _Allocator, count: int) -> Tensor:
        return torch.from_numpy(self._array(room, self.sizes.dtype, count))

    def _two_states(self, room: _Allocator, described: tuple[StateTensor, ...]) -> list[dict[str, Tensor]]:
        return [{t.name: torch.from_numpy(self._array(room, t.dtype, *t.shape)) for t in described} for _ in range(2)]

    @property
    def published(self) -> int:
        return self.control[ControlField.PUBLISHED]

    @property
    def header(self) -> memoryview:
        """The newest header, for the holder of the writer lock."""
        return self.headers[self.published % 2]

    def word(self, field: int) -> int:
        """A word of the newest header, for anyone: the publication after the next would overwrite it."""
        while True:
            number = self.published
            found: int = self.headers[number % 2][field]
            if self.control[ControlField.WRITING] <= number + 1:
                return found

    @property
    def version(self) -> int:
        """The newest version of the parameters."""
        return self.word(HeaderField.VERSION)

    @property
    def snapshot(self) -> tuple[int, int]:
        """The number of the newest snapshot, and the version that it is of."""
        while True:
            header = self.headers[(number := self.published) % 2]
            found = header[HeaderField.SNAPSHOT], header[HeaderField.SNAPSHOT_VERSION]
            if self.control[ControlField.WRITING] <= number + 1:
                return found

    def place(self, sequence: int) -> int:
        """Where a worker has the words about a task's payload; where workers commit, one place is enough for them."""
        return 0 if self.sizes.workers_commit else sequence % 2

    def payload_line(self, worker: int, sequence: int) -> int:
        """Where these words begin among those of all slots."""
        return worker * SLOT_WORDS + SlotField.PAYLOAD + self.place(sequence) * LINE

    def place_of(self, worker: int, sequence: int) -> int:
        """The number of that place among those of all workers."""
        return worker * self.sizes.places + sequence % self.sizes.places

    def payload(self, worker: int, sequence: int) -> Tensor:
        """Where the payload of a task is."""
        places = self.payloads[worker]
        return places[sequence % len(places)]

    def slot(self, worker: int) -> memoryview:
        return self.slots[worker * SLOT_WORDS : (worker + 1) * SLOT_WORDS]

    def report(self, who: int, message: str) -> None:
        """Leaves an error message for the launcher; `who` is a worker's number, or the number of workers for the
        server."""
        text = message.encode()[: MESSAGE_BYTES - 8]
        place = self.messages[who].view(np.uint8)
        place[8 : 8 + len(text)] = np.frombuffer(text, np.uint8)
        self.messages[who, 0] = len(text)

    def reported(self, who: int) -> str:
        length = int(self.messages[who, 0])
        return bytes(self.messages[who].view(np.uint8)[8 : 8 + length]).decode(errors="replace")

    def clear_report(self, who: int) -> None:
        self.messages[who, 0] = 0

    def close(self) -> None:
        """Releases the memory; its views must no longer be used."""
        os.close(self.descriptor)


def check_platform() -> None:
    """Publishing relies on stores becoming visible in their order, which x86-64 guarantees and others do not."""
    machine = platform.machine()
    if machine.lower() not in ("x86_64", "amd64"):
        raise PacelineError(
            f"local workers need an x86-64 processor, this is {machine}: use one process, or `driver='virtual'`"
        )


def _check_room(size_bytes: int, sizes: Sizes) -> None:
    room = free_memory_bytes()
    if size_bytes > room:
        raise PacelineError(
            f"too little shared memory: {sizes.workers} workers with {sizes.numbers:,} parameters need "
            f"{size_bytes / 2**30:.2f} GiB, {room / 2**30:.2f} GiB are free; use fewer workers"
        )
