"""Rows of a Ray data set: its blocks stay in the cluster's object store, and a process fetches those that it needs.

The data set is executed once, with its rows in order. A row then has a number, so that every worker can read any batch.
The driver process executes it and sends references to the blocks to the workers.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import import_module
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from paceline.data.fields import LABELS
from paceline.errors import DataError, nearest, reason

if TYPE_CHECKING:
    from paceline.data.dataset import Dataset

CHUNK_ROWS = 4096
"""Rows that are next to each other and are shuffled together, so that a batch does not need every block."""
KEPT_ROWS = 16 * CHUNK_ROWS
"""The blocks that a process keeps have at least this many rows together."""
KEPT_BLOCKS = 8
"""But never fewer of them."""
READ_WITHIN_S = 600.0
"""A block that is not there by then, because its node is gone and nobody can compute it again, ends the run."""

Block = Mapping[str, Any]
"""Columns as arrays."""


def is_ray_data(given: Any) -> bool:
    """Whether it is a `ray.data.Dataset`, without importing Ray."""
    return any(f"{kind.__module__}.{kind.__name__}" == "ray.data.dataset.Dataset" for kind in type(given).__mro__)


def has_ray_rows(dataset: Dataset) -> bool:
    """Whether the samples are in the object store of a Ray cluster."""
    return any(isinstance(getattr(part, "dataset", None), RayRows) for part in (dataset.train, dataset.test))


def check_without_ray(dataset: Dataset) -> None:
    """Refuses a Ray data set for processes that are not part of a Ray cluster."""
    if has_ray_rows(dataset):
        raise DataError(
            f"data {dataset.name!r} is read by Ray, which workers on this machine are no part of: use `driver='ray'`, "
            "or train in one process"
        )


class RayRows:
    """A map-style data set; several rows are read as one batch."""

    chunk_rows = CHUNK_ROWS

    def __init__(self, name: str, blocks: Sequence[Any], counts: Sequence[int], target: str, *, stacked: bool) -> None:
        """`blocks` are references. With `stacked`, several columns of numbers are one row of inputs."""
        self.name, self.blocks, self.counts, self.target, self.stacked = name, blocks, counts, target, stacked
        self.ends = list(accumulate(counts))
        self.classes: tuple[str, ...] = ()
        self._kept: OrderedDict[int, Block] = OrderedDict()
        self._fetching: dict[int, Future[Block]] = {}
        self._thread: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()

    def __reduce__(self) -> Any:
        return _restored, (self.name, self.blocks, self.counts, self.target, self.stacked, self.classes)

    def __len__(self) -> int:
        return self.ends[-1] if self.ends else 0

    def __getitem__(self, row: int) -> Any:
        x, y = self.__getitems__([row])
        return x[0], y[0]

    def __getitems__(self, rows: Sequence[int]) -> Any:
        """The batch of these rows, in this order: inputs and target."""
        numbers, places = self._blocks_of(rows), np.asarray(rows)
        columns: dict[str, Any] = {}
        for number in np.unique(numbers).tolist():
            block, here = self._block(number), numbers == number
            chosen = places[here] - (self.ends[number] - self.counts[number])
            for name, values in block.items():
                found = values[chosen]
                if name not in columns:
                    columns[name] = np.empty((len(rows), *found.shape[1:]), found.dtype)
                columns[name][here] = found
        return self._as_batch({name: self._tensor(name, values) for name, values in columns.items()})

    def expect(self, rows: Sequence[int]) -> None:
        """Starts to fetch the blocks of rows that will be read later."""
        with self._lock:
            for number in np.unique(self._blocks_of(rows)).tolist():
                if number not in self._kept and number not in self._fetching:
                    self._thread = self._thread or ThreadPoolExecutor(1, "ray-data")
                    self._fetching[number] = self._thread.submit(self._fetch, number)

    def _blocks_of(self, rows: Sequence[int]) -> Any:
        return np.searchsorted(self.ends, rows, side="right")

    def _block(self, number: int) -> Block:
        with self._lock:
            found, fetching = self._kept.get(number), self._fetching.get(number)
            if found is not None:
                self._kept.move_to_end(number)
                return found
        return self._fetch(number) if fetching is None else fetching.result(READ_WITHIN_S)

    def _fetch(self, number: int) -> Block:
        try:
            found: Block = import_module("ray").get(self.blocks[number], timeout=READ_WITHIN_S)
        finally:
            with self._lock:
                self._fetching.pop(number, None)
        with self._lock:
            self._kept[number] = found
            rows = sum(self.counts[each] for each in self._kept)
            while len(self._kept) > KEPT_BLOCKS and rows - self.counts[next(iter(self._kept))] >= KEPT_ROWS:
                dropped, _ = self._kept.popitem(last=False)
                rows -= self.counts[dropped]
        return found

    def _tensor(self, name: str, values: Any) -> Tensor:
        if values.dtype.kind not in "biuf":
            raise DataError(
                f"data {self.name!r}: column {name!r} is not numbers of one shape; convert it or leave it out, with "
                "Ray Data's map_batches or drop_columns"
            )
        return torch.from_numpy(values)

    def _as_batch(self, columns: dict[str, Tensor]) -> Any:
        y = columns.pop(self.target)
        inputs = list(columns.values())
        if self.stacked and all(x.dim() == 1 for x in inputs):
            return torch.stack([x.float() for x in inputs], dim=1), y
        return (inputs[0] if len(inputs) == 1 else columns), y


def _restored(
    name: str, blocks: Sequence[Any], counts: Sequence[int], target: str, stacked: bool, classes: tuple[str, ...]
) -> RayRows:  # fmt: skip
    made = RayRows(name, blocks, counts, target, stacked=stacked)
    made.classes = classes
    return made


def as_one_batch(batch: Any) -> Any:
    """A collate function: the rows were read together."""
    return batch


# In the driver process


def ray_rows(name: str, data: Any, target: str = "", *, stacked: bool = False) -> RayRows:
    """Executes a Ray data set with its rows in order. Without `target`, a column named as targets usually are."""
    ray = import_module("ray")
    context, log = data.context, logging.getLogger("ray.data")
    before = context.execution_options.preserve_order, context.enable_progress_bars, log.level
    context.execution_options.preserve_order, context.enable_progress_bars = True, False
    log.setLevel(logging.ERROR)
    try:
        columns = data.columns() or []
        target = _target(name, columns, target)
        blocks = data.to_numpy_refs()
        described = ray.get([ray.remote(_described).remote(block, target) for block in blocks])
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"data {name!r}: Ray Data failed: {reason(error)}") from error
    finally:
        context.execution_options.preserve_order, context.enable_progress_bars = before[:2]
        log.setLevel(before[2])
    whole = [(block, found) for block, found in zip(blocks, described, strict=True) if found[0]]
    made = RayRows(
        name, tuple(block for block, _ in whole), tuple(rows for _, (rows, *_) in whole), target, stacked=stacked
    )
    if whole and all(kind in "biu" for _, (_, kind, _, _) in whole):
        if min(least for _, (_, _, least, _) in whole) < 0:
            raise DataError(f"data {name!r}: column {target!r} has a class below 0; number the classes from 0")
        made.classes = tuple(str(number) for number in range(int(max(most for *_, (_, _, _, most) in whole)) + 1))
    return made


def _target(name: str, columns: Sequence[str], asked: str) -> str:
    if asked and asked not in columns:
        raise DataError(f"data {name!r}: no column {asked!r}; {nearest(asked, columns)}")
    found = asked or next((label for label in LABELS if label in columns), "")
    if not found or len(columns) < 2:
        raise DataError(
            f"data {name!r} has the columns {', '.join(columns)}; it needs a target, named {', '.join(LABELS)} or with "
            "?target=COLUMN, and at least one other column"
        )
    return found


def _described(block: Block, target: str) -> tuple[int, str, Any, Any]:
    """Rows of a block, and the kind, minimum and maximum of its targets. Runs where the block is."""
    values = block[target]
    if not len(values) or values.ndim > 1 or values.dtype.kind not in "biuf":
        return len(values), "other", 0, 0
    return len(values), values.dtype.kind, values.min(), values.max()
