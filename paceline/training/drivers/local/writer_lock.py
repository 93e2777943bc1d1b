"""Locks for writing a new version of the parameters and for reading one.

Both are locks that the kernel keeps for a process and takes from it when it ends, however that is, so that no dead
process can hold one. One byte of the shared memory's file stands for the writers, another for the readers. A version is
written beside the one there is, so readers and the writer do not wait for each other, except that the writer first lets
those finish who still read what was in its place.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from paceline.training.drivers.local import batch_status, commit_log
from paceline.training.drivers.local.fields import LINE, ControlField, GroupField
from paceline.training.drivers.local.shared_memory import SharedMemory

SPIN_NS = 200_000
"""About the time that an update of a small network takes."""
PAUSE_S = 50e-6
_WRITERS, _READERS = 0, 1


class WriterLock:
    def __init__(self, memory: SharedMemory, on_wait: Callable[[], None] | None = None) -> None:
        """`on_wait` is called while the lock is waited for: to show that one is alive, or to help who holds it."""
        self.memory, self.on_wait = memory, on_wait
        self.held = 0

    def __enter__(self) -> None:
        if not self.held:
            self._acquire(fcntl.LOCK_EX, _WRITERS)
            self._recover()
        self.held += 1

    def __exit__(self, *error: object) -> None:
        self.held -= 1
        if not self.held:
            self._release(_WRITERS)

    @contextmanager
    def reading(self) -> Iterator[int]:
        """The newest version, which nobody overwrites meanwhile."""
        self._acquire(fcntl.LOCK_SH, _READERS)
        try:
            yield self.memory.control[ControlField.VERSION]
        finally:
            self._release(_READERS)

    def wait_for_readers(self) -> None:
        """Waits until nobody reads an older version; readers that begin now read the newest."""
        self._acquire(fcntl.LOCK_EX, _READERS)
        self._release(_READERS)

    def _recover(self) -> None:
        """Completes or undoes what a writer that died had begun."""
        control = self.memory.control
        version = control[ControlField.VERSION]
        if control[ControlField.WRITING] > version:
            batch_status.forget_after(self.memory.batch_status, version)
            control[ControlField.WRITING] = version
        if self.memory.sizes.workers_commit:
            commit_log.finish(self.memory)
        if control[ControlField.COMMITTING_GROUP]:
            start = (control[ControlField.COMMITTING_GROUP] - 1) * LINE
            words = self.memory.groups[start : start + LINE]
            if control[ControlField.EVENTS] >= words[GroupField.COMMITTING_EVENT]:
                words[GroupField.ROUND] = words[GroupField.COMMITTING_ROUND]
            control[ControlField.COMMITTING_GROUP] = 0

    def _acquire(self, kind: int, byte: int) -> None:
        if self._try(kind, byte):
            return
        last_ns = time.monotonic_ns() + SPIN_NS
        while not self._try(kind, byte):
            if time.monotonic_ns() > last_ns:
                time.sleep(PAUSE_S)
                if self.on_wait is not None:
                    self.on_wait()

    def _try(self, kind: int, byte: int) -> bool:
        try:
            fcntl.lockf(self.memory.descriptor, kind | fcntl.LOCK_NB, 1, byte)
        except (BlockingIOError, PermissionError):
            return False
        return True

    def _release(self, byte: int) -> None:
        fcntl.lockf(self.memory.descriptor, fcntl.LOCK_UN, 1, byte)
