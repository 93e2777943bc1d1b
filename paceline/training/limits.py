"""Refuses more workers than memory can hold, before any is taken: one line instead of a dying machine.

The estimate is a lower bound, so that nothing is refused that would have fitted. What remains uncertain is found by the
exact check of shared memory, later.
"""

from __future__ import annotations

from paceline.errors import StrategyError
from paceline.free_memory import free_memory_bytes, memory_size

WORKER_BYTES = {"local": 30 << 20, "ray": 4096, "virtual": 4096}
"""By driver, whatever the network: a process with PyTorch, or some Python objects if it is elsewhere or simulated."""


MOST_LOCAL_WORKERS = 240
"""Each local worker has an open file by which every other process wakes it."""


def check_workers(workers: int, driver: str) -> None:
    """Raises `StrategyError` if the workers need more memory than is free; the check takes microseconds."""
    if driver == "local" and workers > MOST_LOCAL_WORKERS:
        raise StrategyError(f"workers={workers} are too many for one machine: at most {MOST_LOCAL_WORKERS}")
    needed, free = workers * WORKER_BYTES[driver], free_memory_bytes()
    if needed > free:
        simulated = " simulated" if driver == "virtual" else ""
        raise StrategyError(
            f"{workers:,}{simulated} workers need at least {memory_size(needed)} of memory, {memory_size(free)} are "
            "free: use fewer workers"
        )
