"""A worker makes the update of its own payload: its numbers are still in the cache, and nobody has to be woken.

What it does is what the server would do, with the same operations. Only a payload that is finite and makes an update by
itself is dealt with like this, and only if nobody else is writing; any other is left to the server.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from paceline.strategy.instructions import Apply, Compute, Contribution
from paceline.strategy.refusals import is_finite
from paceline.strategy.server import Server
from paceline.train.local import made
from paceline.train.local.event_log import EventLog
from paceline.train.local.memory import Memory
from paceline.train.local.pen import Pen
from paceline.train.local.settings import Settings
from paceline.train.local.span_log import SpanLog
from paceline.train.local.updating import Updating
from paceline.train.local.words import Control

SUPPLY_NS = 10_000_000
"""Tasks for so long are enough for the server to bring more."""


class OwnUpdates:
    def __init__(self, settings: Settings, memory: Memory, spans: SpanLog, beat: Callable[[], None]) -> None:
        self.memory, self.life = memory, settings.life
        self.group = settings.strategy.group_of(settings.number, settings.workers)
        self.pen = Pen(memory, beat)
        self.log = EventLog(memory) if memory.sizes.events else None
        server = Server(settings.strategy, settings.layout, settings.workers)
        self.simple = server.simple and self.log is None
        self.updating = Updating(memory, server, self.log, spans, settings.number)
        self.draft = memory.drafts[settings.number].parameters
        self.held = -1
        """The version that is in the draft."""

    def make(self, task: Compute, pulled: int) -> bool:
        """The next version, of the payload of a task; whether it could be made here."""
        memory = self.memory
        self.held = -1
        if not is_finite(memory.payloads[task.worker][task.sequence % 2]) or not self.pen.take_soon():
            return False
        version = memory.control[Control.VERSION]
        closed = made.write(memory, version + 1, task, pulled)
        if self.simple:
            self.updating.make_simply(version + 1, task, self.group, version - pulled, closed)
        else:
            self._make(version + 1, task, version - pulled, closed)
        self.pen.put_down()
        self.held = version + 1
        return True

    def copy(self, into: Tensor) -> int:
        """The newest version, and its number; mostly it is the one that was made here last."""
        version = self.memory.control[Control.VERSION]
        if version == self.held:
            if into is not self.draft:
                into.copy_(self.draft)
            return version
        with self.pen:
            version = self.memory.control[Control.VERSION]
            into.copy_(self.memory.parameters[0])
        return version

    def _make(self, version: int, task: Compute, staleness: int, closed: int) -> None:
        if self.log is not None:
            self.log.go_on()
            self.log.task(task, self.life)
        key = (task.worker, task.sequence)
        order = Apply(version, (Contribution(self.group, (key,), staleness),), task.epoch, closed)
        self.updating.make(order, {key: task})

    def wanted(self, task_ns: int) -> int:
        """How many tasks the worker should have before it, when one takes so long."""
        return min(max(SUPPLY_NS // task_ns, 2), self.memory.sizes.ahead)
