"""Devices that load data over one shared bus, one after another, while they compute.

With memory M, bandwidth B and N devices, a refresh takes M / B, all of them N * M / B. While a device computes, the bus
serves the N - 1 others; the device is idle for the time this takes longer than computing:

    idle = max(0, (N - 1) * M / B - compute),    useful = compute / (compute + idle)

An iteration takes max(N * M / B, compute + M / B), or with prefetching max(N * M / B, compute).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from paceline.errors import InputError


@dataclass(frozen=True)
class SharedBus:
    memory_bytes: float
    """Bytes loaded to each device per iteration."""
    bandwidth: float
    """Bytes/s."""
    devices: int = 1

    def __post_init__(self) -> None:
        for key in ("memory_bytes", "bandwidth"):
            value = getattr(self, key)
            if not (math.isfinite(value) and value > 0):
                raise InputError(f"{key}={value:g} should be above 0")
        if isinstance(self.devices, bool) or not isinstance(self.devices, int) or self.devices < 1:
            raise InputError(f"devices={self.devices!r} should be a whole number of at least 1")

    @property
    def refresh_s(self) -> float:
        """Time to refresh one device."""
        return self.memory_bytes / self.bandwidth

    @property
    def all_s(self) -> float:
        """Time to refresh all devices, one after another."""
        return self.devices * self.refresh_s

    @property
    def others_s(self) -> float:
        """Time to refresh all devices but one."""
        return (self.devices - 1) * self.refresh_s

    def idle_s(self, compute_s: float) -> float:
        """How long a device waits per iteration if transfers continue while it computes."""
        if not (math.isfinite(compute_s) and compute_s >= 0):
            raise InputError(f"compute_s={compute_s:g} should be at least 0")
        return max(0.0, self.others_s - compute_s)

    def iteration_s(self, compute_s: float, *, ahead: bool = False) -> float:
        """The time of an iteration; `ahead`: the next batch is prefetched while the device computes."""
        if not (math.isfinite(compute_s) and compute_s >= 0):
            raise InputError(f"compute_s={compute_s:g} should be at least 0")
        return max(self.all_s, compute_s if ahead else compute_s + self.refresh_s)

    def useful_share(self, compute_s: float) -> float:
        """Computing time as a share of the time between two refreshes; 0 if there is nothing to compute."""
        whole_s = compute_s + self.idle_s(compute_s)
        return compute_s / whole_s if whole_s else 0.0
