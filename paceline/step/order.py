"""Which samples make up which batch: a pure function of (seed, epoch, worker, workers).

All workers shuffle alike and take every `workers`-th batch, so they share an epoch without overlap.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from paceline.data.dataset import Arrays, Files
from paceline.data.samples import Samples
from paceline.errors import WorkloadError
from paceline.step.randomness import mix

_ORDER = 0x0BDE  # keeps the shuffle apart from other uses of the same seed
WINDOW_CHUNKS = 4
"""Chunks whose samples are shuffled together."""


@dataclass(frozen=True)
class Order:
    samples: int
    batch: int
    seed: int
    worker: int = 0
    workers: int = 1
    shuffle: bool = True
    chunk: int = 0
    """Neighbours that are read together: chunks are shuffled, then the samples of every few of them; 0: all samples."""

    def __post_init__(self) -> None:
        if self.batch > self.samples:
            raise WorkloadError(f"batch {self.batch} is larger than the data: {self.samples} samples")
        if not 0 <= self.worker < self.workers:
            raise WorkloadError(f"worker {self.worker} is not one of {self.workers}")
        if self.batches < 1:
            raise WorkloadError(f"{self.workers} workers for {self.samples} samples in batches of {self.batch}")

    @property
    def all_batches(self) -> int:
        return -(-self.samples // self.batch)

    @property
    def batches(self) -> int:
        """Batches an epoch of this worker; the last of all may be smaller than the others."""
        return len(range(self.worker, self.all_batches, self.workers))

    @property
    def full_batches(self) -> int:
        """How many of this worker's batches are whole; they come first."""
        return len(range(self.worker, self.samples // self.batch, self.workers))

    def permutation(self, epoch: int) -> Tensor:
        """The order of all samples in an epoch, the same for every worker."""
        if not self.shuffle:
            return torch.arange(self.samples)
        generator = torch.Generator().manual_seed(mix(_ORDER, self.seed, epoch))
        if not self.chunk:
            return torch.randperm(self.samples, generator=generator)
        chunks = torch.randperm(-(-self.samples // self.chunk), generator=generator)
        rows = (chunks[:, None] * self.chunk + torch.arange(self.chunk)).flatten()
        windows = rows[rows < self.samples].split(self.window)
        return torch.cat([window[torch.randperm(len(window), generator=generator)] for window in windows])

    @property
    def window(self) -> int:
        """Samples that are shuffled together."""
        return WINDOW_CHUNKS * self.chunk if self.chunk else self.samples

    def epoch(self, epoch: int) -> list[Tensor]:
        """This worker's batches, each the indices of its samples."""
        batches = self.permutation(epoch).split(self.batch)
        return list(batches[self.worker :: self.workers])


def order_of(part: Arrays | Samples | Files, batch: int, seed: int, worker: int = 0, workers: int = 1) -> Order:
    """The order of a training part."""
    chunk = part.chunk_rows if isinstance(part, Samples) else 0
    return Order(len(part), batch, seed, worker, workers, chunk=chunk)
