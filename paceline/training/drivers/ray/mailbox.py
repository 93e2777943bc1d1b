"""What the server knows about one worker: its tasks, and the parameters it computes them on."""

from __future__ import annotations

import threading
from collections import deque
from typing import NamedTuple

from torch import Tensor

from paceline.strategy.instructions import Compute

ANSWER_WITHIN_S = 0.5
"""How long a call of the server may wait for something to happen."""


class Fetched(NamedTuple):
    version: int
    parameters: Tensor


class Mailbox:
    def __init__(self, lock: threading.RLock) -> None:
        self.bell = threading.Condition(lock)
        self.incarnation = 0
        """The one that has joined; 0: none has."""
        self.dead = 0
        """The last incarnation that died."""
        self.generation = ""
        """What its calls are known by since it joined last: an answer to an earlier call must not take its task."""
        self.todo: deque[Compute] = deque()
        self.computing: dict[int, Compute] = {}
        """Tasks that the worker has and has not pushed, by sequence."""
        self.held: dict[int, Fetched] = {}
        """What each of them fetched last."""
        self.last: Fetched | None = None
        """That of the task that was pushed last: the next one may continue with it."""
        self.is_near = False
        """Whether the worker is on the server's node."""
        self.delivered = False
        """The worker has pushed its part of a mean whose other parts are awaited."""
        self.whole_wanted = False
        """It should push its whole payload instead."""
        self.awaits_others = False
        """It waits for other members of its group."""

    def knows(self, generation: str) -> bool:
        """Whether a call is one since the worker joined last."""
        return generation == self.generation

    def put(self, task: Compute) -> None:
        self.todo.append(task)
        self.bell.notify()

    def take(self) -> Compute:
        task = self.todo.popleft()
        self.computing[task.sequence] = task
        return task

    @property
    def is_busy(self) -> bool:
        """Whether the worker has something to compute or to push before it needs another task."""
        return bool(self.computing) and not self.delivered

    @property
    def is_computing(self) -> bool:
        """Whether the worker should be using CPU time."""
        return self.is_busy and not self.awaits_others

    def ask_whole(self) -> None:
        """Asks the worker for its whole payload, because the part it pushed cannot be used."""
        self.delivered, self.whole_wanted = False, True
        self.bell.notify_all()

    def clear(self) -> None:
        """Forgets the tasks of a worker that is gone."""
        self.incarnation, self.generation, self.last = 0, "", None
        self.delivered = self.whole_wanted = self.awaits_others = False
        self.todo.clear()
        self.computing.clear()
        self.held.clear()
        self.bell.notify_all()
