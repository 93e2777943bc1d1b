"""Vectors between the server and a worker of the same node: memory that both map, so that calls stay small.

The worker makes it, and the server finds it through the worker's process; it is gone with the last of them. There is
room for one payload and for parameters. A worker that waits for its next task has its network's parameters there, so
that they arrive where they are needed; one that computes meanwhile finds them at places in turn.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import uuid
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from paceline.training.drivers.ray.job import Job

ALIGNMENT_BYTES = 64
"""As PyTorch aligns its own memory."""
FETCHED = 2
"""The place of parameters for a later step of a task; 0 and 1 are those of its first."""


class MemoryOffer(NamedTuple):
    """Where a server on the same node finds the worker's shared memory."""

    process: int
    file: int
    name: str


class NodeMemory:
    def __init__(self, file: int, job: Job) -> None:
        dtype = job.layout.torch_dtype
        # A mapping that is still in use is freed with the tensors, so nobody closes it.
        values = torch.frombuffer(mmap.mmap(file, _size(job)), dtype=dtype)
        self.payload = values[: job.payload_size]
        places = values[_aligned(job.payload_size, job) :].view(_places(job), _aligned(job.layout.size, job))
        self.parameters = places[:, : job.layout.size]
        self._turn = 0

    def put(self, parameters: Tensor, place: int | None = None) -> tuple[int, int]:
        """Writes parameters, or a part of them, into the given or the next of the two buffers; returns which, and how
        many."""
        if len(self.parameters) == 1:
            place = 0
        elif place is None:
            place = self._turn = 1 - self._turn
        self.parameters[place, : len(parameters)].copy_(parameters)
        return place, len(parameters)


def _places(job: Job) -> int:
    return 1 if job.in_place else 3


def _aligned(numbers: int, job: Job) -> int:
    """With what is left of the last line: products of matrices have other last bits where memory is not aligned."""
    line = ALIGNMENT_BYTES // job.layout.torch_dtype.itemsize
    return -(-numbers // line) * line


def _size(job: Job) -> int:
    numbers = _aligned(job.payload_size, job) + _places(job) * _aligned(job.layout.size, job)
    return numbers * job.layout.torch_dtype.itemsize


class OfferedMemory:
    """Shared memory of a worker, for the servers it joins. An OSError means that none is available."""

    def __init__(self, job: Job) -> None:
        name = f"paceline-{uuid.uuid4().hex}"
        self._file = os.memfd_create(name)
        os.ftruncate(self._file, _size(job))
        self.memory = NodeMemory(self._file, job)
        self.offer = MemoryOffer(os.getpid(), self._file, name)

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):  # there was no file
            os.close(self._file)


def accept_memory(job: Job, offer: MemoryOffer) -> NodeMemory | None:
    """Maps the memory that a worker offers; None if it does not exist."""
    path = Path(f"/proc/{offer.process}/fd/{offer.file}")
    with contextlib.suppress(OSError):
        if offer.name in str(path.readlink()):
            file = os.open(path, os.O_RDWR)
            try:
                return NodeMemory(file, job)
            finally:
                os.close(file)
    return None
