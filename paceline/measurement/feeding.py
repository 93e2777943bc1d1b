"""Measures data loading over a bus that several devices share, with and without prefetching.

A refresh transfers one batch and occupies the bus; then its device computes. Devices and bus are stand-ins that sleep
for the given times. What is measured is the real code between them: the prefetch thread and queue (`step.prefetch`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from time import perf_counter, sleep

import torch

from paceline.errors import InputError
from paceline.measurement.spread import Spread, spread_of
from paceline.step.phase import Batch
from paceline.step.prefetch import Prefetcher

STAND_INS, IMAGES = "stand-ins", "images"
WARM_UP = 3
REAL_BYTES = 1 << 20
"""Bytes that a refresh really copies; it sleeps for the rest of its time."""


@dataclass(frozen=True)
class Feeding:
    """The result of loading data for `devices`. Times are per device and iteration."""

    what: str
    """"stand-ins", or "images" decoded for a real network."""
    devices: int
    ahead: bool
    """Whether the next batch was prefetched while a device computed."""
    refresh_s: float
    """The time of one refresh without contention."""
    compute_s: float
    iterations: int
    iteration_s: Spread
    """From the start of one computation to the start of the next."""
    waiting_s: float
    """Mean time spent waiting for data."""
    conditions: dict[str, str] = field(default_factory=dict)

    @property
    def useful_share(self) -> float:
        return self.compute_s / self.iteration_s.median_s


class Bus:
    """Transfers one batch at a time, in the order of the requests."""

    def __init__(self, refresh_s: float) -> None:
        self.refresh_s = refresh_s
        self._turn = threading.Condition()
        self._next, self._serving = 0, 0

    def carry(self, source: torch.Tensor, target: torch.Tensor) -> None:
        with self._turn:
            mine, self._next = self._next, self._next + 1
            while mine != self._serving:
                self._turn.wait()
        start_s = perf_counter()
        target.copy_(source)
        sleep(max(0.0, start_s + self.refresh_s - perf_counter()))
        with self._turn:
            self._serving += 1
            self._turn.notify_all()


def feed_stand_ins(
    devices: int,
    *,
    ahead: bool,
    refresh_s: float,
    compute_s: float,
    iterations: int = 20,
    watch: Callable[[int, int], None] | None = None,
) -> Feeding:
    """Runs `iterations` on every device at the same time, after a few warm-up iterations."""
    if isinstance(devices, bool) or not isinstance(devices, int) or devices < 1:
        raise InputError(f"devices={devices!r} should be a whole number of at least 1")
    for name, value in (("refresh_s", refresh_s), ("compute_s", compute_s)):
        if not 0 < value < 3600:
            raise InputError(f"{name}={value:g} should be above 0 and below an hour")
    bus, barrier = Bus(refresh_s), threading.Barrier(devices)
    count = iterations + WARM_UP

    def device(number: int) -> list[tuple[float, float]]:
        """For each iteration, when computing began and how long it had waited for data."""
        source = _refreshes(bus, count)
        barrier.wait()
        if not ahead:
            return _computed(source, compute_s, watch if number == 0 else None, count)
        with Prefetcher(source, torch.device("cpu"), 1) as fetched:
            return _computed(iter(fetched), compute_s, watch if number == 0 else None, count)

    with ThreadPoolExecutor(devices) as pool:
        found = list(pool.map(device, range(devices)))
    return feeding_of(STAND_INS, devices, ahead, refresh_s, compute_s, found)


def _refreshes(bus: Bus, count: int) -> Iterator[Batch]:
    source, target = torch.ones(REAL_BYTES, dtype=torch.uint8), torch.empty(REAL_BYTES, dtype=torch.uint8)
    for _ in range(count):
        bus.carry(source, target)
        yield target, target


def _computed(
    batches: Iterator[Batch], compute_s: float, watch: Callable[[int, int], None] | None, count: int
) -> list[tuple[float, float]]:
    found = []
    asked_s = perf_counter()
    for number, _ in enumerate(batches, 1):
        began_s = perf_counter()
        found.append((began_s, began_s - asked_s))
        sleep(compute_s)
        if watch is not None:
            watch(number, count)
        asked_s = perf_counter()
    return found


def feeding_of(
    what: str, devices: int, ahead: bool, refresh_s: float, compute_s: float, found: list[list[tuple[float, float]]]
) -> Feeding:
    """Summarises each device's (start, wait) pairs, without the warm-up iterations."""
    durations = [b[0] - a[0] for device in found for a, b in zip(device[WARM_UP - 1 :], device[WARM_UP:], strict=False)]
    waits = [wait for device in found for _, wait in device[WARM_UP:]]
    conditions = {"torch": torch.__version__, "threads": str(torch.get_num_threads())}
    return Feeding(
        what, devices, ahead, refresh_s, compute_s, len(found[0]) - WARM_UP, spread_of(durations),
        sum(waits) / len(waits), conditions,
    )  # fmt: skip
