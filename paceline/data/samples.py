"""Samples of the user's own `torch.utils.data.Dataset`, read one by one when a batch needs them.

What a data set draws at random, as augmentations do, is a function of (seed, epoch, samples of the batch), so that
every run and every worker reads the same; the random numbers of the training itself are not touched.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, default_collate

from paceline.data.fields import Inputs, as_batch
from paceline.errors import DataError, PacelineError

Key = tuple[list[int], int]
"""The samples of a batch and its epoch."""


@dataclass(frozen=True, eq=False)
class Samples:
    """A part of a data set that can be asked for any sample."""

    name: str
    dataset: Any
    """Has `len` and gives sample i as `dataset[i]`."""
    collate: Callable[[list[Any]], Any] | None = None
    """Makes a batch of samples; None: PyTorch's, with lists of numbers as tensors."""
    readers: int = 0
    """Processes that read ahead; 0: the training process reads."""
    indices: Sequence[int] | None = None

    def __len__(self) -> int:
        return len(self.dataset) if self.indices is None else len(self.indices)

    def first(self, count: int) -> Samples:
        return self.only(range(count))

    def only(self, indices: Sequence[int]) -> Samples:
        return replace(self, indices=indices if self.indices is None else [self.indices[i] for i in indices])

    def read(self, chosen: Tensor, epoch: int = 0, seed: int = 0) -> tuple[Inputs, Tensor]:
        """One batch, in this process."""
        return as_batch(self.name, _Batches(self, seed)[chosen.tolist(), epoch])

    @property
    def chunk_rows(self) -> int:
        """How many neighbours are shuffled together, because they are read together; 0: all samples."""
        return int(getattr(self.dataset, "chunk_rows", 0))

    def expect(self, chosen: Tensor) -> None:
        """Says what will be read later, to a data set that can read ahead."""
        ahead = getattr(self.dataset, "expect", None)
        if ahead is not None:
            rows = chosen.tolist()
            ahead(rows if self.indices is None else [self.indices[row] for row in rows])

    def read_all(self, chosen: Sequence[Tensor], epoch: int, seed: int) -> Iterator[tuple[Inputs, Tensor]]:
        """One batch after another, by the processes that read ahead if there are any."""
        if not self.readers:
            for indices in chosen:
                yield self.read(indices, epoch, seed)
            return
        keys = [(indices.tolist(), epoch) for indices in chosen]
        loader = DataLoader(_Batches(self, seed), batch_size=None, sampler=keys, num_workers=self.readers)
        try:
            received = iter(loader)
            for _ in keys:
                with torch.inference_mode(False):  # a later batch may arrive where nothing is differentiated
                    batch = next(received)
                yield as_batch(self.name, batch)
        except DataError as error:  # from another process it comes with its traceback as text
            raise DataError(str(error).strip().splitlines()[-1].rpartition("DataError: ")[2]) from None


class _Batches(torch.utils.data.Dataset[Any]):
    """A batch by its samples and epoch, for a process that reads."""

    def __init__(self, part: Samples, seed: int) -> None:
        self.part, self.seed = part, seed

    def __getitem__(self, key: Key) -> Any:
        chosen, epoch = key
        part = self.part
        places = chosen if part.indices is None else [part.indices[i] for i in chosen]
        try:
            # A batch may be asked for where nothing is differentiated; what a data set keeps must stay usable.
            with _seeded(self.seed, epoch, *chosen[:1], len(chosen)), torch.inference_mode(False):
                several = getattr(part.dataset, "__getitems__", None)
                items = several(places) if several is not None else [part.dataset[i] for i in places]
                return (part.collate or collate)(items)
        except PacelineError:
            raise
        except Exception as error:
            first = str(error).strip().splitlines()[0] if str(error).strip() else ""
            raise DataError(f"data {part.name!r} failed on a sample: {type(error).__name__}: {first:.200}") from error


@contextmanager
def _seeded(*numbers: int) -> Iterator[None]:
    """Random numbers inside follow from `numbers`; afterwards everything goes on as before."""
    seed = int(np.random.SeedSequence(numbers).generate_state(1)[0])
    states = torch.default_generator.get_state(), np.random.get_state(), random.getstate()
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)
    try:
        yield
    finally:
        torch.default_generator.set_state(states[0])
        np.random.set_state(states[1])
        random.setstate(states[2])


def collate(items: list[Any]) -> Any:
    """PyTorch's own way, except that a list of numbers in a dictionary is a row, as in Hugging Face's data sets."""
    if isinstance(items[0], Mapping):
        items = [{key: _row(value) for key, value in item.items()} for item in items]
        lengths = [{key: value.shape for key, value in item.items() if isinstance(value, Tensor)} for item in items]
        for key in lengths[0]:
            if any(shapes.get(key) != lengths[0][key] for shapes in lengths):
                raise DataError(
                    f"the samples' {key!r} differ in shape; pad them, or give a DataLoader with a collate_fn that pads"
                )
    return default_collate(items)


def _row(value: Any) -> Any:
    return torch.tensor(value) if isinstance(value, list) else value
