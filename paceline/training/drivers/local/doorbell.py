"""Lets a process sleep until another one notifies it. Processes that are awake are not notified."""

from __future__ import annotations

import contextlib
import os
import select
import threading

from paceline.training.drivers.local.fields import LINE
from paceline.training.drivers.local.shared_memory import SharedMemory

_lock = threading.Lock()


def fence() -> None:
    """A memory fence: earlier writes are visible before later reads. Taking a lock is one."""
    _lock.acquire()
    _lock.release()


class Doorbell:
    """Call `arm`, check the condition again, then `wait` or `disarm`: no notification is missed in between."""

    def __init__(self, memory: SharedMemory, number: int, descriptor: int) -> None:
        """`number` is the worker's; the server and the launcher have the two numbers after the last worker."""
        self.asleep, self.own, self.descriptor = memory.asleep, number * LINE, descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)

    def arm(self) -> None:
        self.asleep[self.own] = 1
        fence()

    def disarm(self) -> None:
        self.asleep[self.own] = 0

    def wait(self, timeout_s: float) -> bool:
        """Sleeps until notified or for `timeout_s`; returns whether it was notified."""
        notified = self._poll.poll(timeout_s * 1000)
        self.asleep[self.own] = 0
        if notified:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self.descriptor)
        return bool(notified)

    def notify(self) -> None:
        """Wakes the process if it sleeps. Call it after writing what the process waits for."""
        fence()
        if self.asleep[self.own]:
            os.eventfd_write(self.descriptor, 1)
