"""A list of limited length: of many items it keeps every second, fourth and so on."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


class ThinnedList(list[T]):
    def __init__(self, most: int) -> None:
        super().__init__()
        self._most, self._seen, self._every = most, 0, 1

    def keep(self, item: T) -> None:
        if self._seen % self._every == 0:
            self.append(item)
        self._seen += 1
        if len(self) > self._most:
            self[:], self._every = self[::2], 2 * self._every
