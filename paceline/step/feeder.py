"""Brings batches to the device: kept there when they fit, otherwise fetched ahead while it computes."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, Protocol

import torch
from torch import Tensor

from paceline.data.dataset import Arrays, Dataset, Files, Prepare, Reader, as_is
from paceline.data.fields import Fields, Inputs
from paceline.data.samples import Samples
from paceline.step.order import Order
from paceline.step.phase import Batch
from paceline.step.placement import device_free_bytes
from paceline.step.prefetch import Prefetcher

# Data may take this much of the memory that is free; the rest is for activations.
SHARE_OF_MEMORY = 0.4
DEPTH = 4

Batches = Generator[Batch, None, None]
"""Closing it early ends what fetches ahead."""


class Feeder(Protocol):
    order: Order
    where: str

    def batches(self, epoch: int, first: int = 0) -> Batches:
        """The batches of an epoch from number `first` on, prepared, on the device."""
        ...

    def close(self) -> None: ...


def first_batch(feeder: Feeder) -> Batch:
    """The batch that training begins with, for trying something out."""
    batches = feeder.batches(0)
    batch = next(batches)
    batches.close()
    return batch


class ResidentFeeder:
    """All samples live on the device; a batch is gathered from them."""

    def __init__(self, x: Inputs, y: Tensor, order: Order, prepare: Prepare) -> None:
        self.x, self.y, self.order, self.prepare = x, y, order, prepare
        self.where = f"all {order.samples:,} samples on {x.device}"

    def batches(self, epoch: int, first: int = 0) -> Batches:
        return self.chosen(self.order.epoch(epoch)[first:])

    def chosen(self, indices: list[Tensor]) -> Batches:
        """A batch for each tensor of indices."""
        if indices and self.x.device.type != "cpu":
            sizes = [len(i) for i in indices]
            indices = list(torch.cat(indices).to(self.x.device).split(sizes))
        for chosen in indices:
            yield self.gather(chosen)

    def gather(self, chosen: Tensor) -> Batch:
        return self.prepare(self.x.index_select(0, chosen), self.y.index_select(0, chosen))

    def read(self, chosen: Tensor, epoch: int) -> Batch:
        """The batch of these samples."""
        return self.gather(chosen if self.x.device.type == "cpu" else chosen.to(self.x.device))

    def close(self) -> None:
        pass


class HostFeeder:
    """Samples too many for the device stay in host memory or a mapped file; a thread fetches ahead."""

    def __init__(self, arrays: Arrays, order: Order, prepare: Prepare, device: torch.device) -> None:
        self.arrays, self.order, self.prepare, self.device = arrays, order, prepare, device
        self.where = f"{order.samples:,} samples on the host, fetched ahead"

    def batches(self, epoch: int, first: int = 0) -> Batches:
        indices = self.order.epoch(epoch)[first:]

        def raw() -> Iterator[Batch]:
            for chosen in indices:
                yield self.arrays.gather(chosen)

        with Prefetcher(raw(), self.device, DEPTH) as ahead:
            for x, y in ahead:
                yield self.prepare(x, y)

    def read(self, chosen: Tensor, epoch: int) -> Batch:
        """The batch of these samples."""
        x, y = self.arrays.gather(chosen)
        return self.prepare(x.to(self.device), y.to(self.device))

    def close(self) -> None:
        pass


class FileFeeder:
    """Samples on disk: read and decoded by background processes, several batches ahead."""

    def __init__(
        self,
        files: Files,
        order: Order,
        prepare: Prepare,
        device: torch.device,
        *,
        training: bool,
        readers: int,
    ) -> None:
        self.files, self.order, self.prepare, self.device = files, order, prepare, device
        self.training, self.readers = training, readers
        self.reader: Reader | None = None
        self.idle = True
        self.where = f"{order.samples:,} files, decoded ahead by {readers} processes"

    def batches(self, epoch: int, first: int = 0) -> Batches:
        reader = self._idle_reader()
        self.idle = False
        with Prefetcher(self._raw(reader, self.order.epoch(epoch)[first:], epoch), self.device, 2) as ahead:
            for x, y in ahead:
                yield self.prepare(x, y)

    def _idle_reader(self) -> Reader:
        """The reader, started anew if it was left in the middle of an epoch with its old requests."""
        if not self.idle:
            self.close()
        return self.opened()

    def opened(self) -> Reader:
        """The reader, started if it is not yet."""
        if self.reader is None:
            self.reader = self.files.open(
                batch=self.order.batch, seed=self.order.seed, training=self.training, depth=DEPTH, readers=self.readers
            )
        return self.reader

    def _raw(self, reader: Reader, indices: list[Tensor], epoch: int) -> Iterator[Batch]:
        """Keeps DEPTH requests in flight, and hands on what came, oldest first."""
        for chosen in indices[:DEPTH]:
            reader.request(chosen, epoch)
        for number in range(len(indices)):
            x, y = reader.receive()
            batch = x.clone(), y.clone()  # the reader reuses its memory for a later request
            if number + DEPTH < len(indices):
                reader.request(indices[number + DEPTH], epoch)
            self.idle = number + 1 == len(indices)  # nobody may ask for more than the last batch
            yield batch

    def close(self) -> None:
        if self.reader is not None:
            self.reader.close()
            self.reader, self.idle = None, True


class SampleFeeder:
    """Samples of the user's data set, read when they are needed, or ahead by processes if it asks for some."""

    def __init__(self, part: Samples, order: Order, prepare: Prepare, device: torch.device) -> None:
        self.part, self.order, self.prepare, self.device = part, order, prepare, device
        ahead = f"by {part.readers} process{'es' * (part.readers > 1)}" if part.readers else "by the training process"
        self.where = f"{order.samples:,} samples of a torch Dataset, read {ahead}"

    def batches(self, epoch: int, first: int = 0) -> Batches:
        for x, y in self.part.read_all(self.order.epoch(epoch)[first:], epoch, self.order.seed):
            yield self.prepare(x.to(self.device), y.to(self.device))

    def read(self, chosen: Tensor, epoch: int) -> Batch:
        """The batch of these samples."""
        x, y = self.part.read(chosen, epoch, self.order.seed)
        return self.prepare(x.to(self.device), y.to(self.device))

    def close(self) -> None:
        pass


def make_feeder(
    dataset: Dataset,
    order: Order,
    device: torch.device,
    dtype: torch.dtype,
    *,
    training: bool,
    readers: int,
) -> Feeder:
    """The feeder for one part of a data set, on `device`."""
    part = dataset.train if training else dataset.test

    def prepare(x: Any, y: Tensor) -> Batch:
        x, y = dataset.prepare(x, y)
        return floats_as(dtype, x), y

    if isinstance(part, Samples):
        return SampleFeeder(part, order, prepare, device)
    if not isinstance(part, Arrays):
        return FileFeeder(part, order, prepare, device, training=training, readers=readers)
    room = SHARE_OF_MEMORY * device_free_bytes(device)
    if isinstance(part.x, Tensor) and _prepared_bytes(part, prepare) <= room / 2:
        return ResidentFeeder(*_prepared(part.x, part.y, prepare, device), order, as_is)
    if part.size_bytes <= room:
        return ResidentFeeder(part.x.to(device), part.y.to(device), order, prepare)
    return HostFeeder(part, order, prepare, device)


def floats_as(dtype: torch.dtype, x: Inputs) -> Inputs:
    """Inputs in the type that is trained in; whole numbers stay what they are."""
    if isinstance(x, Fields):
        return x.each(lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor)
    return x.to(dtype) if x.is_floating_point() else x


def _prepared_bytes(part: Arrays, prepare: Prepare) -> int:
    x, y = prepare(*part.rows(slice(0, 1)))
    return len(part) * int(x.numel() * x.element_size() + y.numel() * y.element_size())


def _prepared(x: Tensor, y: Tensor, prepare: Prepare, device: torch.device) -> tuple[Tensor, Tensor]:
    """The whole part, prepared once instead of batch by batch; in pieces, so that little memory is used twice."""
    first, target = prepare(x[:1], y[:1])
    if first.dtype == x.dtype and target.dtype == y.dtype and first.data_ptr() == x.data_ptr():
        return x.to(device), y.to(device)
    xs = torch.empty((len(x), *first.shape[1:]), dtype=first.dtype, device=device)
    ys = torch.empty((len(x), *target.shape[1:]), dtype=target.dtype, device=device)
    for start in range(0, len(x), 1024):
        piece = slice(start, start + 1024)
        xs[piece], ys[piece] = prepare(x[piece].to(device), y[piece].to(device))
    return xs, ys
