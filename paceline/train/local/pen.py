"""Who may read and write parameters where workers make updates themselves: the one process that has the pen.

It is a lock that the kernel keeps for a process and takes from it when it ends, however that is, so that no dead one
can hold it. A worker that does not get it soon leaves its payload to the server.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable

from paceline.train.local import drafts, marks
from paceline.train.local.memory import Memory
from paceline.train.local.words import Control

SOON_NS = 60_000
"""Two updates of a small network."""
NAP_S = 50e-6


class Pen:
    def __init__(self, memory: Memory, meanwhile: Callable[[], None] | None = None) -> None:
        """`meanwhile` is done while it is waited for: to show that one is alive, or what another waits for."""
        self.memory, self.meanwhile, self.held = memory, meanwhile, 0

    def take_soon(self) -> bool:
        """Whether it could be had in a moment; it is busy for no longer than an update takes."""
        if self._take():
            return True
        last_ns = time.monotonic_ns() + SOON_NS
        while time.monotonic_ns() < last_ns:
            if self._take():
                return True
        return False

    def put_down(self) -> None:
        self.held -= 1
        if not self.held:
            fcntl.lockf(self.memory.descriptor, fcntl.LOCK_UN)

    def __enter__(self) -> None:
        while not self.take_soon():
            time.sleep(NAP_S)
            if self.meanwhile is not None:
                self.meanwhile()

    def __exit__(self, *error: object) -> None:
        self.put_down()

    def _take(self) -> bool:
        if not self.held:
            try:
                fcntl.lockf(self.memory.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):
                return False
            control = self.memory.control
            version = control[Control.VERSION]
            if control[Control.WRITING] > version:  # who had it died before its update was whole
                marks.forget_later(self.memory.marks, version)
            if control[Control.DRAFT]:
                drafts.finish(self.memory)
        self.held += 1
        return True
