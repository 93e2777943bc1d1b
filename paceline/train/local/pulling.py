"""Copying one version of the parameters while the server goes on, without a lock.

The server writes version v + 1 beside version v, into the buffer of v - 1. A reader announces what it copies, and
the server gives it some time before it writes there. Whether the copy is of one version is then checked: the
server says what it is going to write before it writes. A reader that dies in between hinders nobody for long.

Where workers make updates themselves there is one vector for all versions, and who copies it has the pen meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from paceline.train.local.memory import Memory
from paceline.train.local.pen import Pen
from paceline.train.local.words import LINE, Control

PATIENCE_S = 2.0
"""How long the server waits for a reader. A copy takes less; whoever was stopped in between has to try again."""


def read_version(
    memory: Memory, reader: int, copy: Callable[[int], None], meanwhile: Callable[[], None] | None = None
) -> tuple[int, int]:
    """Calls `copy` with a version until what it copied was whole; the version, and how often it was not.

    `meanwhile` is done while the pen is waited for.
    """
    control, readers, own = memory.control, memory.readers, reader * LINE
    if memory.sizes.own_updates:
        with Pen(memory, meanwhile):
            copy(control[Control.VERSION])
            return control[Control.VERSION], 0
    retries = 0
    while True:
        version = control[Control.VERSION]
        readers[own] = version + 1
        if control[Control.VERSION] == version:
            copy(version)
            if control[Control.WRITING] <= version + 1:
                readers[own] = 0
                return version, retries
            retries += 1


def begin_writing(
    memory: Memory,
    version: int,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Before the server writes `version`: says so, and waits for those who still read what was in its place."""
    memory.control[Control.WRITING] = version
    if memory.sizes.own_updates:
        return
    readers = memory.readers
    if (version - 1) not in readers.tolist():  # the one two before it, and 1
        return
    deadline_s = clock() + PATIENCE_S
    while version > 1 and version - 1 in readers.tolist() and clock() < deadline_s:
        sleep(20e-6)
