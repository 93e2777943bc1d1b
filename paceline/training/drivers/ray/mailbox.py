"""What the server knows about one worker: its tasks, and what it computes them on."""

from __future__ import annotations

import threading
from collections import deque

from torch import Tensor

from paceline.strategy.instructions import Compute


class Mailbox:
    def __init__(self, lock: threading.RLock) -> None:
        self.bell = threading.Condition(lock)
        self.incarnation = 0
        """The one that has joined; 0: none has."""
        self.dead = 0
        """The last incarnation that died."""
        self.todo: deque[Compute] = deque()
        self.computing: dict[int, Compute] = {}
        """Tasks that the worker has and has not pushed, by sequence."""
        self.held: dict[int, Tensor] = {}
        """The parameters that each of them fetched last."""
        self.last: Tensor | None = None
        """Those of the task that was pushed last: the next one may continue with them."""

    def put(self, task: Compute) -> None:
        self.todo.append(task)
        self.bell.notify()

    def take(self) -> Compute:
        task = self.todo.popleft()
        self.computing[task.sequence] = task
        return task

    def clear(self) -> None:
        """The worker is gone."""
        self.incarnation, self.last = 0, None
        self.todo.clear()
        self.computing.clear()
        self.held.clear()
        self.bell.notify_all()
