"""How a run that an exception ends is recorded: failed, diverged or interrupted, never still running."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from paceline.errors import Diverged, Interrupted

MOST_CHARACTERS = 2000


def status_after(error: BaseException) -> str:
    """The status of a run that `error` ended."""
    if isinstance(error, Diverged):
        return "diverged"
    return "interrupted" if isinstance(error, Interrupted | KeyboardInterrupt) else "failed"


def message_of(error: BaseException) -> str:
    """One line for the record; an exception without a text is named by its type."""
    text = " ".join(str(error).split())
    known = isinstance(error, Diverged | Interrupted) or type(error).__module__.startswith("paceline.")
    name = type(error).__name__
    return (text if known and text else f"{name}: {text}" if text else name)[:MOST_CHARACTERS]


@contextmanager
def recorded_end(write: Callable[[str, str], None]) -> Iterator[None]:
    """Calls `write(status, message)` when an exception ends the block, and raises the exception again.

    If writing fails too, as on a full disk, the first exception is the one that is raised.
    """
    try:
        yield
    except BaseException as error:
        with contextlib.suppress(Exception):
            write(status_after(error), message_of(error))
        raise
