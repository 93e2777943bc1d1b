"""Objects that the user gave in Python, on their way to the workers: through the object store, to each node once."""

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
    """None where a workload names nothing but what every node finds by itself."""
    texts = {f.name: value for f in fields(workload) if isinstance(value := getattr(workload, f.name), str)}
    if not any(is_held(text) for text in texts.values()):
        return None
    arrays: list[Any] = []
    saved = dump_held(texts, lambda content: arrays.append(ray.put(np.frombuffer(content, np.uint8))))
    return SentObjects(saved, tuple(arrays))


def receive_objects(ray: Any, sent: SentObjects, within_s: float) -> None:
    """Holds them for the rest of this process. What the object store has cannot be written to, so it is copied."""
    found = ray.get(list(sent.arrays), timeout=within_s)
    hold_dumped(sent.saved, (memoryview(bytearray(array)) for array in found))
