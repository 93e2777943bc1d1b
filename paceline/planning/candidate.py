"""A candidate: machine, number of workers, strategy, batch size and precision."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass

from paceline.strategy.strategy import Strategy

ONE_PROCESS = Strategy()
"""Stands for no strategy, with one worker."""

PRECISIONS = ("float64", "float32", "tf32", "bfloat16")
"""From most to least exact."""
MAX_IN_FLIGHT = 16
"""In batches of the workload. Without a target accuracy, a plan with more is picked only if no other meets the
objective."""
MAX_IN_FLIGHT_UNCORRECTED = 8
"""The limit without correction of stale gradients: 16 such workers diverged where 8 converged."""


@dataclass(frozen=True)
class Candidate:
    machine: str
    device: str
    """The device of each worker."""
    workers: int
    workers_per_machine: int
    strategy: Strategy
    batch: int
    """Batch size per worker."""
    precision: str
    pipeline: int = 1
    """Stages that each copy of the network is divided into; `workers` counts their processes."""
    microbatches: int = 1
    """Parts of a batch that go through a pipeline."""
    tensor: int = 1
    """Processes that each linear layer is divided among; `workers` counts them."""
    shard: str = "none"
    """fsdp: the workers divide parameters, gradients and optimizer state among themselves."""

    @property
    def is_divided(self) -> bool:
        """Whether no device has the whole network."""
        return self.pipeline > 1 or self.tensor > 1 or self.shard != "none"

    @property
    def needs_no_simulation(self) -> bool:
        """Whether its prediction is all: one copy exchanges nothing, and a divided network's step was simulated."""
        return self.copies == 1 or self.is_divided

    @property
    def division(self) -> str:
        """How the network is divided, in a few words."""
        if self.pipeline > 1:
            return f"pipeline, {self.microbatches} micro-batches"
        return "layers by feature" if self.tensor > 1 else "sharded (fsdp)"

    @property
    def copies(self) -> int:
        """Copies of the network, each with a batch of its own."""
        return self.workers // (self.pipeline * self.tensor)

    @property
    def undivided(self) -> Candidate:
        """The candidate that learns alike, with the whole network on each device."""
        if not self.is_divided:
            return self
        return dataclasses.replace(self, workers=self.copies, pipeline=1, microbatches=1, tensor=1, shard="none")

    @property
    def machines(self) -> int:
        return -(-self.workers // self.workers_per_machine)

    @property
    def waits_for_all(self) -> bool:
        """Whether every update includes all workers, so that no gradient is stale."""
        return self.strategy.groups == 1 or self.copies == 1

    @property
    def samples_in_flight(self) -> int:
        """Samples whose gradients are computed on the same or stale parameters: every worker's, from fetch to push.

        For a synchronous step it is the global batch; for asynchronous workers, batch * (staleness + 1).
        """
        return self.copies * self.batch * max(1, self.strategy.fetch_every, self.strategy.push_every)

    def is_close_to(self, batch: int) -> bool:
        """Close enough to training with this batch size that the same number of epochs should converge similarly."""
        corrected = self.waits_for_all or self.strategy.make_correction is not None
        return self.samples_in_flight <= batch * (MAX_IN_FLIGHT if corrected else MAX_IN_FLIGHT_UNCORRECTED)

    def __str__(self) -> str:
        number = f"{self.machines} × {self.machine}" if self.machines > 1 else self.machine
        if self.pipeline > 1:
            how = f"a pipeline of {self.pipeline} stages, {self.microbatches} micro-batches"
        elif self.tensor > 1:
            how = f"layers divided among {self.tensor} devices"
        elif self.shard != "none":
            how = f"parameters sharded among {self.workers} workers ({self.shard})"
        elif self.workers == 1:
            how = "one worker"
        elif self.strategy.groups is not None and self.strategy.groups > 1:
            how = f"{self.strategy.name} in {self.strategy.groups} groups of {self.workers // self.strategy.groups}"
        else:
            how = f"{self.strategy.name} with {self.workers} workers"
        return f"{number}, {how}, batch {self.batch:,}, {self.precision}"


@functools.cache
def strategy_kind(strategy: Strategy) -> Strategy:
    """Equal for strategies that differ only in groups and periods, which depend on the number of workers."""
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
    """Whether its workers together compute the same as one process with the global batch."""
    exchange = strategy.make_exchange
    plain = exchange.sums_gradients and exchange.is_dense and strategy.make_correction is None
    return plain and strategy.is_synchronous and strategy.one_batch_per_task and not strategy.server_optimizer
