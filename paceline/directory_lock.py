"""A lock on a directory that the kernel releases when its owner dies, however it dies: flock on a file in it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import time
import weakref
from collections.abc import Callable
from pathlib import Path

from paceline.errors import OutputError

LOCK = ".lock"
_UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""File systems without locks; a run there is not protected, which is better than no run."""
_OWNER_WAIT_S = 0.1
"""The owner writes its process id right after it has the lock; a reader may be a moment too early."""


class DirectoryLock:
    """Holds the lock of a directory from its construction to `close`. Errors of the file system are `OSError`s.

    Processes started meanwhile do not inherit it, so the lock ends with the process that took it.
    """

    def __init__(self, directory: Path, taken: Callable[[str], str]) -> None:
        """`taken` makes the error if someone else has it, from who that is: ` (process 123)`, or nothing if unknown."""
        self.path = directory / LOCK
        self._descriptor = _acquire(self.path, taken)
        _held.add(self)
        os.ftruncate(self._descriptor, 0)
        os.write(self._descriptor, f"{os.getpid()} {socket.gethostname()}\n".encode())

    def __enter__(self) -> DirectoryLock:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Removes the file and releases the lock; a second call does nothing."""
        if self._descriptor < 0:
            return
        with contextlib.suppress(OSError):
            self.path.unlink()  # while it is locked: whoever waits with this file open finds that it is gone
        self._drop()

    def _drop(self) -> None:
        """Closes the descriptor only; the lock stays with any other process that shares it."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


_held: weakref.WeakSet[DirectoryLock] = weakref.WeakSet()


def _drop_all() -> None:
    for lock in list(_held):
        lock._drop()


os.register_at_fork(after_in_child=_drop_all)


def _acquire(path: Path, taken: Callable[[str], str]) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        with contextlib.ExitStack() as on_failure:
            on_failure.callback(os.close, descriptor)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise OutputError(taken(_owner(descriptor))) from None
            except OSError as error:
                if error.errno not in _UNSUPPORTED:
                    raise
            with contextlib.suppress(FileNotFoundError):  # its last owner may have removed it before our flock
                if os.path.samestat(os.fstat(descriptor), path.stat()):
                    on_failure.pop_all()
                    return descriptor


def _owner(descriptor: int) -> str:
    deadline_s = time.monotonic() + _OWNER_WAIT_S
    while True:
        words = os.pread(descriptor, 400, 0).decode(errors="replace").split()
        if len(words) == 2 and words[0].isdigit():
            if words[1] != socket.gethostname():
                return f" (process {words[0]} on {words[1]})"
            if Path(f"/proc/{words[0]}").exists():  # otherwise it is left from a run that was killed
                return f" (process {words[0]})"
        if time.monotonic() > deadline_s:
            return ""
        time.sleep(0.005)
