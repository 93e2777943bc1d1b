"""Which batches of which epoch are still to be done. Every batch is given out once, and again only if it comes back."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

ANYONE = -1
"""In place of a worker: batches that any worker may do."""


class Batches:
    """The batches of all epochs.

    An epoch opens when the one before it is all given out and the one before that is done.
    """

    def __init__(self, each: int, epochs: int, workers: int, full_pass_per_worker: bool) -> None:
        self.each, self.epochs, self.workers, self.full_pass_per_worker = each, epochs, workers, full_pass_per_worker
        self.per_epoch = each * workers if full_pass_per_worker else each
        """With a full pass per worker, batch i of worker w is number w * each + i."""
        self.opened = 0
        """Epochs opened so far."""
        self.todo: dict[int, dict[int, deque[int]]] = {}
        """Batches to be given out of every open epoch: anyone's, and with a full pass per worker each worker's own."""
        self.done: dict[int, bytearray] = {}
        """A byte for every batch of an open epoch: whether it was applied, dropped or refused."""
        self._left: dict[int, int] = {}

    def _open(self, epoch: int, done: Iterable[int] = ()) -> None:
        self.opened = epoch + 1
        self.done[epoch] = bytearray(self.per_epoch)
        for batch in done:
            self.done[epoch][batch] = 1
        left = [batch for batch, is_done in enumerate(self.done[epoch]) if not is_done]
        self._left[epoch] = len(left)
        todo = self.todo[epoch] = {ANYONE: deque(() if self.full_pass_per_worker else left)}
        for batch in left if self.full_pass_per_worker else ():
            todo.setdefault(self.owner(batch), deque()).append(batch)

    def next_epoch(self, worker: int) -> int | None:
        """The epoch whose batches are next for a worker; None when there are none now."""
        for epoch, todo in self.todo.items():
            if todo[ANYONE] or todo.get(worker):
                return epoch
        if self.opened < self.epochs and self.opened - next(iter(self.done), self.opened) < 2:
            self._open(self.opened)
            return self.opened - 1
        return None

    def open_until(self, epoch: int) -> None:
        """A worker has batches of `epoch` already, so it and those before it are open or done."""
        while self.opened <= epoch:
            self._open(self.opened)

    def remaining(self, epoch: int) -> int:
        """How many batches of an epoch are not given out yet."""
        return sum(map(len, self.todo[epoch].values()))

    def owner(self, batch: int) -> int:
        """With a full pass per worker: the worker whose batch it is."""
        return batch // self.each

    def take(self, worker: int, epoch: int, most: int) -> tuple[int, ...]:
        source = self.todo[epoch][ANYONE] or self.todo[epoch].get(worker)
        if not source:
            return ()
        return (source.popleft(),) if most == 1 else tuple(source.popleft() for _ in range(min(most, len(source))))

    def take_these(self, epoch: int, batches: tuple[int, ...]) -> None:
        """Takes batches that a worker has already."""
        for source in self.todo[epoch].values():
            for batch in batches:
                if batch in source:
                    source.remove(batch)

    def orphan(self, worker: int) -> None:
        """A worker will not come back: its remaining batches go to the others."""
        for todo in self.todo.values():
            todo[ANYONE].extend(todo.pop(worker, ()))

    def put_back(self, epoch: int, batches: tuple[int, ...]) -> None:
        """Batches that a worker did not finish are given out next."""
        self.todo[epoch][ANYONE].extendleft(reversed(batches))

    def close(self, epoch: int, batches: tuple[int, ...]) -> bool:
        """These need no more doing; whether they were the last of the epoch."""
        done = self.done[epoch]
        for batch in batches:
            assert not done[batch], f"batch {batch} of epoch {epoch} is counted twice"
            done[batch] = 1
        self._left[epoch] -= len(batches)
        if self._left[epoch]:
            return False
        del self.done[epoch], self.todo[epoch], self._left[epoch]
        return True

    def closed(self, epoch: int) -> int:
        return self.per_epoch - self._left.get(epoch, 0)

    def restore(self, opened: int, done: dict[int, list[int]]) -> None:
        """Where a run was: how many epochs were open so far, and what was done of those that still are."""
        for epoch in sorted(done):
            if len(done[epoch]) < self.per_epoch:
                self._open(epoch, done[epoch])
        self.opened = opened

    @property
    def finished(self) -> bool:
        return self.opened >= self.epochs and not self.done
