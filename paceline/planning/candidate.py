"""A way to train a workload: on which machine and how many workers, with which strategy, batch and precision."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass

from paceline.strategy.strategy import Strategy

ONE_PROCESS = Strategy()
"""Stands for no strategy at all, where there is one worker."""

PRECISIONS = ("float64", "float32", "tf32", "bfloat16")
"""The more exact first."""
MOST_UNDER_WAY = 16
"""Batches of the workload. Where nothing is trained, a plan with more is picked only if no other keeps the wish."""
MOST_UNCORRECTED = 8
"""The same where late gradients are not corrected: 16 such workers diverged where 8 learned."""


@dataclass(frozen=True)
class Candidate:
    machine: str
    device: str
    """What a worker computes on; one a worker."""
    workers: int
    workers_per_machine: int
    strategy: Strategy
    batch: int
    """Of a worker."""
    precision: str

    @property
    def machines(self) -> int:
        return -(-self.workers // self.workers_per_machine)

    @property
    def waits_for_all(self) -> bool:
        """Whether an update has every worker's part in it, so that none is stale."""
        return self.strategy.groups == 1 or self.workers == 1

    @property
    def samples_under_way(self) -> int:
        """Samples whose gradients are computed without knowing of each other: every worker's, from fetch to push.

        For a synchronous step it is the joined batch; for asynchronous workers, batch * (staleness + 1).
        """
        return self.workers * self.batch * max(1, self.strategy.fetch_every, self.strategy.push_every)

    def is_near(self, batch: int) -> bool:
        """Near enough to a workload of this batch that as many epochs of it may be taken to learn about as much."""
        corrected = self.waits_for_all or self.strategy.make_correction is not None
        return self.samples_under_way <= batch * (MOST_UNDER_WAY if corrected else MOST_UNCORRECTED)

    def __str__(self) -> str:
        number = f"{self.machines} × {self.machine}" if self.machines > 1 else self.machine
        if self.workers == 1:
            how = "one worker"
        elif self.strategy.groups is not None and self.strategy.groups > 1:
            how = f"{self.strategy.name} in {self.strategy.groups} groups of {self.workers // self.strategy.groups}"
        else:
            how = f"{self.strategy.name} with {self.workers} workers"
        return f"{number}, {how}, batch {self.batch:,}, {self.precision}"


@functools.cache
def kind_of(strategy: Strategy) -> Strategy:
    """Equal for strategies that differ only in what depends on the number of workers and batches: groups, periods."""
    several = strategy.groups is not None and strategy.groups > 1
    return dataclasses.replace(
        strategy,
        name="",
        groups=2 if several else strategy.groups,
        push_every=min(2, strategy.push_every),
        fetch_every=min(2, strategy.fetch_every),
    )


@functools.cache
def joins_batches(strategy: Strategy) -> bool:
    """Whether its workers compute together what one process does with their joined batch."""
    exchange = strategy.make_exchange
    plain = exchange.sums_gradients and exchange.is_dense and strategy.make_correction is None
    return plain and strategy.is_synchronous and strategy.one_batch_per_task and not strategy.server_optimizer
