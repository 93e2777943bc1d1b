"""Which batches of which epoch are still to be done. Every batch is given out once, and again only if it comes back."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterable

ANYONE = -1
"""In place of a worker: batches that any worker may do."""


class Batches:
    """The batches of all epochs.

    An epoch opens when the one before it is all given out and the one before that is done. Where phases are trained in
    turn (`turns.py`), a batch has a number for each turn, and is given out for the next turn when it is done in this.
    """

    def __init__(self, each: int, epochs: int, workers: int, full_pass_per_worker: bool, turns: int = 1) -> None:
        self.each, self.epochs, self.workers, self.full_pass_per_worker = each, epochs, workers, full_pass_per_worker
        self.turns, self.per_turn = turns, each * workers if full_pass_per_worker else each
        """With a full pass per worker, batch i of worker w is number w * each + i."""
        self.per_epoch = self.per_turn * turns
        self.opened = 0
        """Epochs opened so far."""
        self.todo: dict[int, dict[int, deque[int]]] = {}
        """Batches to be given out of every open epoch: anyone's, and with a full pass per worker each worker's own."""
        self.following: dict[int, list[int]] = {}
        """Batches to be given out of every open epoch that were done in the turn before; they go first."""
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
        self.following[epoch] = []
        if self.turns > 1:
            before = self.done[epoch]
            self.following[epoch] = [b for b in left if b >= self.per_turn and before[b - self.per_turn]]
            left = [b for b in left if b < self.per_turn]
        todo = self.todo[epoch] = {ANYONE: deque(() if self.full_pass_per_worker else left)}
        for batch in left if self.full_pass_per_worker else ():
            todo.setdefault(self.owner(batch), deque()).append(batch)

    def next_epoch(self, worker: int) -> int | None:
        """The epoch whose batches are next for a worker; None when there are none now."""
        for epoch, todo in self.todo.items():
            if todo[ANYONE] or todo.get(worker) or self.following[epoch]:
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
        return len(self.following[epoch]) or sum(map(len, self.todo[epoch].values()))

    def owner(self, batch: int) -> int:
        """With a full pass per worker: the worker whose batch it is."""
        return batch % self.per_turn // self.each

    def next_turn(self, epoch: int) -> int:
        """The turn whose batches are given out next."""
        following = self.following[epoch]
        return following[0] // self.per_turn if following else 0

    def take(self, worker: int, epoch: int, most: int, turn: int = 0) -> tuple[int, ...]:
        if turn:
            following = self.following[epoch]
            found = tuple(batch for batch in following if batch // self.per_turn == turn)[:most]
            self.following[epoch] = [batch for batch in following if batch not in found]
            return found
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
        if self.turns > 1:
            self.following[epoch] = [batch for batch in self.following[epoch] if batch not in batches]

    def orphan(self, worker: int) -> None:
        """A worker will not come back: its remaining batches go to the others."""
        for todo in self.todo.values():
            todo[ANYONE].extend(todo.pop(worker, ()))

    def put_back(self, epoch: int, batches: tuple[int, ...]) -> None:
        """Batches that a worker did not finish are given out next."""
        if batches[0] < self.per_turn:
            self.todo[epoch][ANYONE].extendleft(reversed(batches))
            return
        for batch in batches:
            insort(self.following[epoch], batch)

    def close(self, epoch: int, batches: tuple[int, ...]) -> bool:
        """These need no more doing; whether they were the last of the epoch."""
        done = self.done[epoch]
        for batch in batches:
            assert not done[batch], f"batch {batch} of epoch {epoch} is counted twice"
            done[batch] = 1
        if self.turns > 1:
            for batch in batches:
                if batch + self.per_turn < self.per_epoch:
                    insort(self.following[epoch], batch + self.per_turn)
        self._left[epoch] -= len(batches)
        if self._left[epoch]:
            return False
        del self.done[epoch], self.todo[epoch], self.following[epoch], self._left[epoch]
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
