"""Decodes batches of images ahead of their use, in processes of their own, into shared memory."""

from __future__ import annotations

import os
import select
import weakref
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from paceline.data.decode_process import DecodeProcess, DecodeTask
from paceline.data.decode_worker import Settings
from paceline.data.decoded_cache import create
from paceline.data.ring import PathTable, Ring, anonymous_file
from paceline.errors import DataError

_TASKS_PER_READER = 4
_MOST_DEATHS = 3


class ImageReader:
    """A `Reader`. The tensors of `receive` are views of the ring: they are valid until the next `receive`.

    There is one slot more than batches in flight, so the batch being used is never being written. Without `fast`,
    Pillow decodes all images. `cache` is a file that keeps decoded images, up to `cache_bytes`.
    """

    def __init__(
        self,
        paths: PathTable,
        labels: Tensor,
        *,
        batch: int,
        size: int,
        seed: int,
        training: bool,
        depth: int,
        readers: int,
        fast: bool = True,
        cache: Path | None = None,
        cache_bytes: int = 0,
    ) -> None:
        self._paths, self._labels, self._batch = paths, labels, batch
        self._depth = max(1, depth)
        if cache is not None:
            create(cache, cache_bytes)
        ring = Ring(self._depth + 1, batch, size)
        descriptors = (anonymous_file("paceline-ring", ring.size_bytes), paths.share())
        self._views = ring.map(descriptors[0])
        self._pixels = torch.from_numpy(self._views.pixels)
        kept = (str(cache or ""), cache_bytes)
        settings = Settings(*descriptors, len(paths), ring.slots, batch, size, seed, training, fast, *kept)
        self._decoders = [DecodeProcess(settings) for _ in range(max(1, readers))]
        self._requested = 0
        self._in_flight: deque[tuple[int, int]] = deque()
        """Slot and number of samples, oldest first."""
        self._missing = [0] * ring.slots
        self._failure: DataError | None = None
        # Also runs when a reader is forgotten, or the program ends.
        self._release = weakref.finalize(self, _release, self._decoders, descriptors)

    @property
    def process_ids(self) -> tuple[int, ...]:
        return tuple(decoder.process_id for decoder in self._decoders)

    def request(self, indices: Tensor, epoch: int) -> None:
        """Starts decoding a batch of at most `batch` samples; at most `depth` batches may be in flight."""
        assert self._release.alive, "the reader is closed"
        assert len(self._in_flight) < self._depth, "receive a batch before requesting another"
        wanted = np.asarray(indices, dtype=np.int64)
        count = len(wanted)
        assert 0 < count <= self._batch, "a request has between 1 and `batch` samples"
        assert wanted.min() >= 0 and wanted.max() < len(self._paths), "a sample of this part"
        slot = self._requested % len(self._missing)
        self._requested += 1
        self._views.indices[slot, :count] = wanted
        self._views.epochs[slot] = epoch
        self._missing[slot] = count
        self._in_flight.append((slot, count))
        self._collect(timeout_s=0)
        step = max(1, -(-count // (_TASKS_PER_READER * len(self._decoders))))
        for start in range(0, count, step):
            task = DecodeTask(slot, start, min(start + step, count))
            min(self._decoders, key=lambda decoder: decoder.waiting).give(task)

    def receive(self) -> tuple[Tensor, Tensor]:
        """Waits for the oldest request: bytes [batch, 3, size, size] and classes."""
        assert self._in_flight, "request a batch before receiving one"
        slot, count = self._in_flight[0]
        while self._missing[slot] and self._failure is None:
            self._collect(timeout_s=None)
        if self._failure is not None:
            raise self._failure
        self._in_flight.popleft()
        wanted = torch.from_numpy(self._views.indices[slot, :count])
        return self._pixels[slot, :count], self._labels[wanted]

    def _collect(self, timeout_s: float | None) -> None:
        ready, _, _ = select.select(self._decoders, [], [], timeout_s)
        for decoder in ready:
            try:
                for task, message in decoder.answers():
                    self._missing[task.slot] -= len(task)
                    if message:
                        self._failure = DataError(message)
            except EOFError:
                self._replace(decoder)

    def _replace(self, decoder: DecodeProcess) -> None:
        task = decoder.restart()
        if task is not None and task.deaths >= _MOST_DEATHS:
            first = self._paths[int(self._views.indices[task.slot, task.start])]
            self._failure = DataError(
                f"image {first} or one of the {len(task) - 1} after it ended the decoder "
                f"{task.deaths} times; is there enough memory, and can Pillow read them?"
            )

    def close(self) -> None:
        """Ends the decoders; the memory goes with the last tensor that shows it."""
        self._release()


def _release(decoders: Sequence[DecodeProcess], descriptors: Sequence[int]) -> None:
    for decoder in decoders:
        decoder.stop()
    for descriptor in descriptors:
        os.close(descriptor)
