"""Logs the memory that traced operations allocate and free, in order."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, UntypedStorage

Event = tuple[int, int]
"""A block's number, and its size in bytes where it is allocated, or `FREED`."""
FREED = -1
WORKSPACE = -2
"""In place of a size: the operation with this number, counted from 0, needs its workspace at this moment."""


@dataclass
class AllocationLog:
    """Numbers storages as they appear and notices when the last tensor that uses one is gone."""

    events: list[Event] = field(default_factory=list)
    _numbers: dict[int, int] = field(default_factory=dict)
    _references: list[Any] = field(default_factory=list)
    _next: int = 0

    def see(self, tensors: Iterable[Tensor], *, is_new: bool = True) -> None:
        """`is_new`: storages seen for the first time were allocated by the operation; else they were there before."""
        for tensor in tensors:
            storage = tensor.untyped_storage()
            if storage._cdata in self._numbers:
                continue
            number = self._number()
            self._numbers[storage._cdata] = number
            self._references.append(weakref.ref(storage, self._on_free(storage, number, is_new)))
            if is_new:
                self.events.append((number, storage.nbytes()))

    def number_of(self, tensor: Tensor) -> int:
        return self._numbers[tensor.untyped_storage()._cdata]

    def _number(self) -> int:
        self._next += 1
        return self._next

    def _on_free(self, storage: UntypedStorage, number: int, is_new: bool) -> Any:
        address = storage._cdata

        def on_free(_: Any) -> None:
            self._numbers.pop(address, None)
            if is_new:
                self.events.append((number, FREED))

        return on_free
