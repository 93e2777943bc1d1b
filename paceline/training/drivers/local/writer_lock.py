"""The lock for writing a new version of the parameters.

The kernel keeps it for a process and takes it from one that ends, however that is, so that no dead process can hold it.
A version is written beside the one there is, so readers need no lock: see `SharedStore.read`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from fcntl import LOCK_EX, LOCK_NB, LOCK_UN, lockf

from paceline.training.drivers.local import batch_status
from paceline.training.drivers.local.fields import ControlField
from paceline.training.drivers.local.shared_memory import SharedMemory

_TRY = LOCK_EX | LOCK_NB
SPIN_NS = 200_000
"""About the time that an update of a small network takes."""
PAUSE_S = 50e-6


class WriterLock:
    def __init__(self, memory: SharedMemory, on_wait: Callable[[], None] | None = None) -> None:
        """`on_wait` is called while waiting for the lock, to send heartbeats or to check its holder."""
        self.memory, self.on_wait = memory, on_wait
        self.held = 0

    def __enter__(self) -> None:
        if not self.held:
            if not self._try():
                self._wait()
            control = self.memory.control
            if control[ControlField.WRITING] > control[ControlField.PUBLISHED]:  # a writer died
                batch_status.forget_unpublished(self.memory)
                control[ControlField.WRITING] = control[ControlField.PUBLISHED]
        self.held += 1

    def __exit__(self, *error: object) -> None:
        self.held -= 1
        if not self.held:
            lockf(self.memory.descriptor, LOCK_UN, 1)

    def _wait(self) -> None:
        last_ns = time.monotonic_ns() + SPIN_NS
        while not self._try():
            if time.monotonic_ns() > last_ns:
                time.sleep(PAUSE_S)
                if self.on_wait is not None:
                    self.on_wait()

    def _try(self) -> bool:
        try:
            lockf(self.memory.descriptor, _TRY, 1)
        except (BlockingIOError, PermissionError):
            return False
        return True
