"""Phases in turn: synchronous workers exchange the gradient of each phase in a round of its own.

One process updates the parameters of a phase before it computes the gradient of the next one on the same batch. A
synchronous group does the same: a round for the first phase, its update, then a round for the next phase with the same
batches. So `k` workers give what one process with the batch of all of them gives. A step is one phase on one batch, and
a batch has a number for each turn: batch b of turn t is step t * batches + b.

Asynchronous workers compute the gradients of all phases with the same parameters, and so do groups whose exchange
keeps or compresses something of the whole vector, and those that do not fetch in every step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from paceline.strategy.instructions import Apply, Compute, Contribution
from paceline.strategy.strategy import Strategy

if TYPE_CHECKING:
    from paceline.strategy.layout import Layout


@dataclass(frozen=True)
class Turns:
    count: int
    """Rounds that a batch takes part in per epoch; 1: all phases at once."""
    batches: int
    """Per epoch, over all passes."""

    @staticmethod
    def of(strategy: Strategy, layout: Layout, workers: int) -> Turns:
        batches = layout.batches * (workers if strategy.full_pass_per_worker else 1)
        exchange = strategy.make_exchange
        plain = exchange.sums_gradients and exchange.is_dense and not exchange.local_optimizer
        if strategy.groups is None or strategy.fetch_every != 1 or not plain or len(layout.phases) == 1:
            return Turns(1, batches)
        active = {sum(p.rule.trains_in(epoch) for p in layout.phases) for epoch in range(layout.epochs)}
        return Turns(active.pop() if len(active) == 1 else 1, batches)

    @property
    def steps(self) -> int:
        """Per epoch."""
        return self.count * self.batches

    def turn(self, step: int) -> int:
        return step // self.batches

    def turn_of(self, task: Compute) -> int:
        """The phase, or the fragment of the parameters, that an update of this task's payload changes."""
        return task.fragment if self.count == 1 else self.turn(task.batches[0])

    def batch(self, step: int) -> int:
        return step % self.batches

    def order(self, update: int, contributions: tuple[Contribution, ...], epoch: int, closed: int) -> Apply:
        """An update, made when so many steps of the epoch were closed; the rate is the same in all turns of a batch."""
        tasks = contributions[0].tasks
        turn = self.turn_of(tasks[0])
        if self.count == 1:
            return Apply(update, contributions, epoch, closed, turn)
        before = closed - turn * sum(len(task.batches) for task in tasks)
        return Apply(update, contributions, epoch, max(0, before) // self.count, turn)
