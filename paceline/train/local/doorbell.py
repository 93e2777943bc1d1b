"""How a process sleeps until another has something for it. Nobody spins, and who is awake is not rung for."""

from __future__ import annotations

import contextlib
import os
import select
import threading

from paceline.train.local.memory import Memory
from paceline.train.local.words import LINE

_fence = threading.Lock()


def fence() -> None:
    """What was written before is seen by others before anything after is read: taking a lock does that, on x86-64."""
    _fence.acquire()
    _fence.release()


class Doorbell:
    """`lie_down`, look once more, then `sleep` or `get_up`: so no ring is missed between a look and the sleep."""

    def __init__(self, memory: Memory, number: int, descriptor: int, parent: int | None = None) -> None:
        """`number` is the worker's; after the last come the server, the launcher and the server's other shards."""
        self.asleep, self.own = memory.asleep, number * LINE
        self.descriptor, self.parent = descriptor, parent
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)

    def lie_down(self) -> None:
        self.asleep[self.own] = 1
        fence()

    def get_up(self) -> None:
        self.asleep[self.own] = 0

    def sleep(self, timeout_s: float) -> bool:
        """Until it rings, or for so long: whether it rang. Ends the process if the one it belongs to is gone."""
        rang = self._poll.poll(timeout_s * 1000)
        self.asleep[self.own] = 0
        if rang:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self.descriptor)
        elif self.parent is not None and os.getppid() != self.parent:
            os._exit(1)
        return bool(rang)

    def ring(self) -> None:
        """Wakes the sleeper, if it sleeps, after something was written for it."""
        fence()
        if self.asleep[self.own]:
            os.eventfd_write(self.descriptor, 1)
