"""Sends objects passed from Python to the workers through Ray's object store, once per node."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from paceline.held_objects import dump_held, hold_dumped, is_held
from paceline.workload import Workload


@dataclass(frozen=True, eq=False)
class SentObjects:
    saved: dict[str, bytes]
    arrays: tuple[Any, ...] = ()
    """References to large arrays in the object store."""


def send_objects(ray: Any, workload: Workload) -> SentObjects | None:
    """None if the workload refers only to what every node can find itself."""
    texts = {f.name: value for f in fields(workload) if isinstance(value := getattr(workload, f.name), str)}
    if not any(is_held(text) for text in texts.values()):
        return None
    arrays: list[Any] = []
    saved = dump_held(texts, lambda content: arrays.append(ray.put(np.frombuffer(content, np.uint8))))
    return SentObjects(saved, tuple(arrays))


def receive_objects(ray: Any, sent: SentObjects, within_s: float) -> None:
    """Holds the objects for the rest of this process. They are copied, because the object store is read-only."""
    found = ray.get(list(sent.arrays), timeout=within_s)
    hold_dumped(sent.saved, (memoryview(bytearray(array)) for array in found))
