"""Whether a candidate fits: a worker into its device, and all workers of a machine, with the server, into its memory.

A tenth stays free: the library's own needs, and what is not foreseen.
"""

from __future__ import annotations

from paceline.planning.candidate import Candidate
from paceline.planning.estimate import placing_of
from paceline.planning.places import Place
from paceline.simulation.worker_step import exchanges_by_server

MEMORY_SHARE = 0.9
"""Of a memory that may be needed."""
IN_A_SLOT = 4
"""Times the parameters, for each worker that exchanges with a server: payloads, and what they were computed on."""
IN_THE_SERVER = 8
"""Times the parameters: two versions of them and of an optimizer's state, and those of two epochs."""


def fits(candidate: Candidate, place: Place, worker_bytes: int, parameter_bytes: int) -> bool:
    """`worker_bytes` are what a worker computes with. Memory whose size is not known holds anything."""
    placing = placing_of(candidate, place)
    exchanged_bytes = 0
    if candidate.workers > 1 and exchanges_by_server(candidate.strategy, placing):
        exchanged_bytes = (IN_A_SLOT * placing.on_one + IN_THE_SERVER * placing.together) * parameter_bytes
    device_bytes, host_bytes = place.device.memory_bytes, place.machine.memory_bytes
    if device_bytes is not None and worker_bytes > MEMORY_SHARE * device_bytes:
        return False
    in_host = exchanged_bytes + (placing.on_one * worker_bytes if device_bytes is None and not placing.on_gpu else 0)
    return host_bytes is None or in_host <= MEMORY_SHARE * host_bytes


def is_known(place: Place) -> bool:
    """Whether the memory that workers compute in has a known size."""
    on_cpu = place.device.kind == "cpu"
    return place.device.memory_bytes is not None or (on_cpu and place.machine.memory_bytes is not None)
