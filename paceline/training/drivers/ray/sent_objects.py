"""Sends objects passed from Python to the workers through Ray's object store, once per node.

Of a data set that Ray reads, workers receive references to its blocks.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from paceline.data.dataset import Dataset
from paceline.data.ray_rows import has_ray_rows
from paceline.held_objects import dump_held, hold_dumped, is_held
from paceline.workload import Workload


@dataclass(frozen=True, eq=False)
class SentObjects:
    saved: dict[str, bytes]
    arrays: tuple[Any, ...] = ()
    """References to large arrays in the object store."""
    dataset: Dataset | None = None
    """A data set that Ray reads."""


def send_objects(ray: Any, workload: Workload, dataset: Dataset) -> SentObjects | None:
    """None if the workload refers only to what every node can find itself."""
    texts = {f.name: value for f in fields(workload) if isinstance(value := getattr(workload, f.name), str)}
    read_by_ray = has_ray_rows(dataset)
    if read_by_ray:
        del texts["data"]
    if not any(is_held(text) for text in texts.values()):
        return SentObjects({}, dataset=dataset) if read_by_ray else None
    arrays: list[Any] = []
    saved = dump_held(texts, lambda content: arrays.append(ray.put(np.frombuffer(content, np.uint8))))
    return SentObjects(saved, tuple(arrays), dataset if read_by_ray else None)


def receive_objects(ray: Any, sent: SentObjects, within_s: float) -> None:
    """Holds the objects for the rest of this process. They are copied, because the object store is read-only."""
    found = ray.get(list(sent.arrays), timeout=within_s)
    hold_dumped(sent.saved, (memoryview(bytearray(array)) for array in found))
