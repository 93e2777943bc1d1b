"""Refuses a distributed run that cannot fit into memory, before any is taken: one line instead of a dying machine.

The estimate is a lower bound from a few measured constants, so that nothing is refused that would have fitted. What
remains uncertain is found by the exact check of shared memory, later.
"""

from __future__ import annotations

from dataclasses import dataclass

from paceline.errors import StrategyError
from paceline.free_memory import free_memory_bytes, gigabytes


@dataclass(frozen=True)
class Footprint:
    """Bytes that a driver takes at least."""

    worker: int
    """For each worker, whatever the network."""
    vectors: int
    """Copies of the parameters for each worker."""
    batch: int
    """For each batch of an epoch."""
    epoch: int


FOOTPRINTS = {
    "local": Footprint(worker=30 << 20, vectors=2, batch=16, epoch=24),
    "virtual": Footprint(worker=4096, vectors=1, batch=40, epoch=0),
    "time": Footprint(worker=4096, vectors=0, batch=40, epoch=0),
}
"""A process with PyTorch has 30 MB of its own at least; a simulated worker about 7 kB of Python objects. A batch that
is not yet given out is a whole number in a queue, and a byte."""


def estimate_bytes(
    workers: int, driver: str, *, parameters: int = 0, number_bytes: int = 4, batches: int = 0, epochs: int = 1
) -> int:
    """What the driver (local, virtual, or time for a simulation without gradients) takes at least.

    `batches` are those of an epoch, over all workers.
    """
    each = FOOTPRINTS[driver]
    vectors = each.vectors * parameters * number_bytes
    return workers * (each.worker + vectors) + batches * each.batch + epochs * each.epoch


def check_workers(
    workers: int,
    driver: str,
    *,
    parameters: int = 0,
    number_bytes: int = 4,
    batches: int = 0,
    epochs: int = 1,
    free_bytes: int | None = None,
) -> None:
    """Raises `StrategyError` if the estimate is more than the free memory, which is that of this machine if not given.

    It takes microseconds: call it before anything is built, and again when parameters and batches are known.
    """
    needed = estimate_bytes(
        workers, driver, parameters=parameters, number_bytes=number_bytes, batches=batches, epochs=epochs
    )
    free = free_memory_bytes() if free_bytes is None else free_bytes
    if needed <= free:
        return
    others = estimate_bytes(0, driver, batches=batches, epochs=epochs)
    what = f"{workers:,} workers" if needed - others >= others else f"{batches:,} batches and {epochs:,} epochs"
    kind = {"local": "", "virtual": " simulated", "time": " simulated"}[driver]
    what = what.replace(" workers", f"{kind} workers")
    advice = "use fewer workers" if "workers" in what else "use fewer steps or epochs, or a larger batch"
    raise StrategyError(f"{what} need at least {gigabytes(needed)} of memory, {gigabytes(free)} are free: {advice}")
