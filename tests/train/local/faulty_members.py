"""Networks whose worker 1 ends, hangs or fails while its group adds up; all of them are the same network.

Worker 0 goes on when the other is replaced, so that the run is not over by then.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from itertools import count
from typing import Any

from torch import nn

from paceline.strategy.instructions import Compute
from paceline.train.local.adding_up import AddingUp
from paceline.train.local.communicator import Communicator
from paceline.train.local.settings import Settings
from paceline.train.local.words import SLOT_WORDS, Of
from tests.train.local.small import in_a_worker

NUMBER_OF_SUM = 8
"""Of the first life, the first of which only connects."""


def sound() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def ends_before_the_sum() -> nn.Module:
    """The others have begun it, and wait."""
    return _faulty("begin", before=_end_later)


def ends_after_the_sum() -> nn.Module:
    """The others have it, and it does not count."""
    return _faulty("finish", after=_end)


def ends_while_forming() -> nn.Module:
    return _faulty("begin", before=_end, number=1)


def hangs_before_the_sum() -> nn.Module:
    return _faulty("begin", before=lambda: os.kill(os.getpid(), signal.SIGSTOP))


def fails_once() -> nn.Module:
    return _faulty("finish", after=_fail, replaced=False)


def fails_always() -> nn.Module:
    return _faulty("begin", before=_fail, number=None, replaced=False)


def _end() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _end_later() -> None:
    time.sleep(0.1)
    _end()


def _fail() -> None:
    raise RuntimeError("the cable is out")


def _faulty(
    method: str,
    *,
    before: Callable[[], None] = lambda: None,
    after: Callable[[], None] = lambda: None,
    number: int | None = NUMBER_OF_SUM,
    replaced: bool = True,
) -> nn.Module:
    """Does something before and after call `number` of a method, None: every call, in the first life of worker 1."""
    settings = Settings.of(sys.argv[1]) if in_a_worker() else None
    if settings is not None and (settings.number, settings.life) == (1, 1):
        original, calls = getattr(Communicator, method), count(1)

        def met(self: Communicator) -> Any:
            due = number is None or next(calls) == number
            if due:
                before()
            found = original(self)
            if due:
                after()
            return found

        setattr(Communicator, method, met)
    if settings is not None and settings.number == 0 and replaced:
        begin = AddingUp.begin

        def wait(self: AddingUp, task: Compute) -> None:
            while self.memory.given_up[0] and self.memory.slots[SLOT_WORDS + Of.JOINED] < 2:
                time.sleep(0.02)
                self.beat()
            begin(self, task)

        AddingUp.begin = wait  # type: ignore[method-assign]
    return sound()
