"""How fast the Ray driver moves large vectors between a worker and the server, and how fast Ray's object store is."""

from __future__ import annotations

from statistics import median
from time import perf_counter

import numpy as np

from paceline.training.drivers.ray.node_links import FLOAT_BYTES, move_times


def put_gb_per_s(numbers: int, repeats: int) -> float:
    """`ray.put` of an array, as `ray microbenchmark` measures it in "single client put gigabytes"."""
    import ray

    array = np.zeros(numbers, dtype=np.float32)
    times = []
    for _ in range(repeats + 1):
        start_s = perf_counter()
        reference = ray.put(array)
        times.append(perf_counter() - start_s)
        del reference
    return array.nbytes / median(times[1:]) / 1e9


def driver_gb_per_s(numbers: int, repeats: int, nodes: tuple[str, str], shards: int = 1) -> dict[str, float]:
    """Of parameters that are fetched, and of payloads and parameters; between a server and a worker on these nodes.

    Several shards are on one node after another.
    """
    import ray

    size_bytes = FLOAT_BYTES * numbers
    found = move_times(ray, size_bytes, repeats, *nodes, shards)
    return {"pull": size_bytes / found.fetch_s / 1e9, "push and pull": 2 * size_bytes / found.exchange_s / 1e9}
