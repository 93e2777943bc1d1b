"""The parameter server without a transport: events in, calls of two ports out. Every driver runs this engine.

A driver reports what happened (workers joined or died, payloads arrived, workers committed updates by themselves); the
engine asks the coordinator what follows and carries it out through

- a `Store`, which holds the versions of the parameters and commits updates,
- a `Transport`, which brings tasks to workers and tells them what is done.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from paceline.errors import Diverged
from paceline.strategy.coordinator import Coordinator
from paceline.strategy.instructions import Apply, Compute, Drop, EpochDone, Instruction

MOST_IN_A_ROW = 100
"""Consecutive non-finite payloads after which the run counts as diverged, whatever the policy."""


class Store(Protocol):
    def commit(self, order: Apply) -> bool:
        """Makes the version `order.update`, whole or not at all; False: it will be, and `Engine.applied` is called."""
        ...

    def discard(self, task: Compute, refused: bool) -> None:
        """The batches of a task are closed without an update."""
        ...


class Transport(Protocol):
    def assign(self, task: Compute) -> None: ...

    def release(self, worker: int, sequence: int) -> None:
        """A payload is no longer needed: it was applied or dropped."""
        ...

    def announce(self, epoch: int) -> None:
        """All batches of the epoch are done."""
        ...


class Engine:
    def __init__(
        self, coordinator: Coordinator, store: Store, transport: Transport, on_bad_gradient: str = "stop"
    ) -> None:
        self.coordinator, self.store, self.transport = coordinator, store, transport
        self.on_bad_gradient = on_bad_gradient
        """What to do about a non-finite payload: `stop` the run, or `skip` the payload."""
        self.refused_in_a_row = 0
        self._todo: deque[Instruction] = deque()
        self._busy = False

    # What a driver reports

    def joined(self, *workers: int) -> None:
        self._carry_out(self.coordinator.joined(*workers))

    def died(self, worker: int, *, for_good: bool = False) -> None:
        self._carry_out(self.coordinator.died(worker, for_good=for_good))

    def pushed(self, worker: int, sequence: int, pulled: int, finite: bool = True) -> bool:
        """A payload has arrived, computed on version `pulled`; whether it was accepted."""
        if finite or not self.coordinator.is_awaited(worker, sequence):
            self.refused_in_a_row = 0 if finite else self.refused_in_a_row
            self._carry_out(self.coordinator.ready(worker, sequence, pulled))
            return True
        self.refused(worker, sequence)
        return False

    def refused(self, worker: int, sequence: int) -> None:
        """A payload is not finite: the policy decides."""
        task = self.coordinator.members[worker].tasks[sequence]
        self.refused_in_a_row += 1
        where = f"worker {worker}, task {sequence}, epoch {task.epoch + 1}, step {task.batches[0]}"
        if self.on_bad_gradient == "stop":
            raise Diverged(
                f"a payload is not finite ({where}): lower the learning rate, or continue without such payloads "
                "with `on_bad_gradient='skip'`"
            )
        if self.refused_in_a_row >= MOST_IN_A_ROW:
            raise Diverged(
                f"{MOST_IN_A_ROW} payloads in a row were not finite, the last of {where}: lower the learning rate"
            )
        self.store.discard(task, refused=True)
        self._carry_out(self.coordinator.refused(worker, sequence))

    def committed(self, worker: int, sequence: int, pulled: int) -> Apply:
        """A worker has made an update by itself; the update, for the record."""
        self.refused_in_a_row = 0
        order, following = self.coordinator.committed(worker, sequence, pulled)
        self._carry_out(following)
        return order

    def applied(self, order: Apply) -> None:
        """An update that took time is made."""
        self._release(order)
        self._carry_out(self.coordinator.applied(order.update))

    # What follows

    def _carry_out(self, instructions: list[Instruction]) -> None:
        """In order; what follows from an instruction comes after those that were there before."""
        self._todo.extend(instructions)
        if self._busy:
            return
        self._busy = True
        try:
            todo, transport, store = self._todo, self.transport, self.store
            while todo:
                one = todo.popleft()
                kind = type(one)
                if kind is Compute:
                    transport.assign(one)  # type: ignore[arg-type]
                elif kind is Apply:
                    if store.commit(one):  # type: ignore[arg-type]
                        self._release(one)  # type: ignore[arg-type]
                        todo.extend(self.coordinator.applied(one.update))  # type: ignore[union-attr]
                elif kind is Drop:
                    if one.task is not None:  # type: ignore[union-attr]
                        store.discard(one.task, refused=False)  # type: ignore[union-attr]
                    transport.release(one.worker, one.sequence)  # type: ignore[union-attr]
                else:
                    assert isinstance(one, EpochDone)
                    transport.announce(one.epoch)
        except BaseException:
            self._todo.clear()
            raise
        finally:
            self._busy = False

    def _release(self, order: Apply) -> None:
        for contribution in order.contributions:
            for task in contribution.tasks:
                self.transport.release(task.worker, task.sequence)
