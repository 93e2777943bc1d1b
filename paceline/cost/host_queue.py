"""A step that is not captured, as two queues: the host launches operations one after another, the device runs them.

The host runs ahead of the device until the queue of launches is full. In the steady state the slower of the two
determines the time of an iteration, and the device is idle where it waits for the next launch.
"""

from __future__ import annotations

from collections.abc import Sequence

QUEUE = 1024
"""Launches that wait at most; then the host waits for the device."""
ITERATIONS = 4
"""Enough for the steady state: the host's lead builds up in the first ones."""


def iteration_s(host_s: Sequence[float], device_s: Sequence[float]) -> float:
    """The time of an iteration in the steady state, from the times that each launch takes on host and device."""
    ends: list[float] = []
    host = device = begun = 0.0
    for _ in range(ITERATIONS):
        begun = device
        for launch, run in zip(host_s, device_s, strict=True):
            if len(ends) >= QUEUE:
                host = max(host, ends[-QUEUE])
            host += launch
            device = max(device, host) + run
            ends.append(device)
    return device - begun
