"""Whether a candidate fits in memory: a worker on its device, and all workers and the server on their machine.

10 % is left free for libraries and everything not modelled.
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline.planning.candidate import Candidate
from paceline.planning.estimate import placement_of
from paceline.planning.machine_options import MachineOption
from paceline.simulation.worker_step import exchanges_by_server

MEMORY_SHARE = 0.9
"""Share of the memory that may be used."""
CONTEXT_BYTES = 600 << 20
"""The CUDA context and libraries of a worker, beside the memory that PyTorch reserves."""
SLOT_COPIES = 4
"""Copies of the parameters per worker that exchanges with a server: payloads and fetched parameters."""
SERVER_COPIES = 8
"""Copies of the parameters in the server: two versions with optimizer state, and those of two epochs."""


def fits(candidate: Candidate, place: MachineOption, worker_bytes: int, parameter_bytes: int) -> bool:
    """`worker_bytes`: memory of one worker. Memory of unknown size is not a limit."""
    placement = placement_of(candidate, place)
    exchanged_bytes = 0
    if candidate.workers > 1 and exchanges_by_server(candidate.strategy, placement):
        exchanged_bytes = (SLOT_COPIES * placement.on_one + SERVER_COPIES * placement.together) * parameter_bytes
    device_bytes, host_bytes = place.device.memory_bytes, place.machine.memory_bytes
    if device_bytes is not None and worker_bytes + CONTEXT_BYTES > MEMORY_SHARE * device_bytes:
        return False
    in_host = exchanged_bytes + (
        placement.on_one * worker_bytes if device_bytes is None and not placement.on_gpu else 0
    )
    return host_bytes is None or in_host <= MEMORY_SHARE * host_bytes


def shares_fit(place: MachineOption, shares_bytes: Sequence[int]) -> bool:
    """Whether each share of a divided network fits on its device, and all of them on their machine."""
    device_bytes, host_bytes = place.device.memory_bytes, place.machine.memory_bytes
    if device_bytes is not None:
        return max(shares_bytes) + CONTEXT_BYTES <= MEMORY_SHARE * device_bytes
    return host_bytes is None or place.device.kind == "gpu" or sum(shares_bytes) <= MEMORY_SHARE * host_bytes


def is_known(place: MachineOption) -> bool:
    """Whether the size of the workers' memory is known."""
    on_cpu = place.device.kind == "cpu"
    return place.device.memory_bytes is not None or (on_cpu and place.machine.memory_bytes is not None)
