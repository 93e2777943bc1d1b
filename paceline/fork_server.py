"""A process that has imported PyTorch once and forks others, so that they start in a moment.

It does nothing but fork: no thread runs in it and no tensor was computed, so its children are as good as new. It ends
with the process that started it, and its children end with it, also by SIGKILL. This module imports nothing slow, so
that a command can start a fork server before PyTorch is imported.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from paceline.child_environment import child_environment
from paceline.errors import PacelineError

_PR_SET_PDEATHSIG = 1
_REQUEST, _ANSWER = struct.Struct("Q"), struct.Struct("qqdq")
_FORKED = 1 << 40
"""In place of an exit status: the process was started."""
_MOST_DESCRIPTORS = 250
START_TIMEOUT_S = 120.0
IF_LOADED = ("sklearn.datasets", "pydoc_data.topics", "PIL.Image", "torch._dynamo")
"""Imported before a fork if the starting process has them: what its data or optimizer needed, its children's will too.

An optimizer of torch.optim imports torch._dynamo with its first step, which takes seconds in every new process."""


class Ended(NamedTuple):
    """How a process ended, and what it used."""

    code: int
    """Its exit code; a negative one is the signal that ended it."""
    cpu_s: float = 0.0
    peak_memory_bytes: int = 0

    @property
    def how(self) -> str:
        if self.code >= 0:
            return f"ended with exit code {self.code}"
        try:
            name = signal.Signals(-self.code).name
        except ValueError:
            name = f"signal {-self.code}"
        return f"was ended by {name}" + (", perhaps for want of memory" if name == "SIGKILL" else "")


class Forked:
    """A forked process, as the one that asked for it has it."""

    def __init__(self, server: ForkServer, process_id: int) -> None:
        self.server, self.process_id = server, process_id
        self.ended: Ended | None = None

    def poll(self) -> Ended | None:
        """How it ended, if it has."""
        if self.ended is None:
            self.ended = self.server.ended(self.process_id)
        return self.ended

    def signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process_id, number)

    def kill(self) -> None:
        """Ends it at once and waits until it is gone."""
        self.signal(signal.SIGKILL)
        self.wait()

    def wait(self) -> None:
        while self.poll() is None:
            self.server.wait(0.05)


class ForkServer:
    def __init__(self, preload: Sequence[str]) -> None:
        """`preload` names the modules that its children will not have to import."""
        ours, theirs = socket.socketpair()
        self.socket, self.owner = ours, os.getpid()
        self._ended: dict[int, Ended] = {}
        self._answers: list[int] = []
        self._unread = b""
        self._lock = threading.RLock()
        with theirs:
            # -P: a file called numpy.py in the current folder must not be imported.
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-W",
                    "ignore",
                    str(Path(__file__)),
                    str(theirs.fileno()),
                    str(os.getpid()),
                    *preload,
                ],
                stdin=subprocess.DEVNULL,
                stdout=2,  # what a user's module prints must not get between the lines of a record
                pass_fds=(theirs.fileno(),),
                env=child_environment(),
                # A process group of its own: Ctrl-C is for the launcher, which then ends its children.
                process_group=0,
            )

    @property
    def alive(self) -> bool:
        return self.owner == os.getpid() and self.process.poll() is None

    def fork(self, target: str, text: str, descriptors: Sequence[int] = (), imports: Sequence[str] = ()) -> Forked:
        """A new process that calls `target` (module:function) with a text and with these open files.

        It has the current directory and the environment of the caller. The fork server imports `imports` first, once.
        """
        if len(descriptors) > _MOST_DESCRIPTORS:
            raise PacelineError(f"{len(descriptors)} open files are too many for one process: use fewer workers")
        loaded = [name for name in IF_LOADED if name in sys.modules]
        request = json.dumps([[*imports, *loaded], target, text, _here(), child_environment()]).encode()
        with self._lock:
            try:
                socket.send_fds(self.socket, [_REQUEST.pack(len(request))], descriptors)
                self.socket.sendall(request)
                while not self._answers:
                    if not self._read(START_TIMEOUT_S):
                        raise PacelineError(f"no process could be started within {START_TIMEOUT_S:g} s")
                return Forked(self, self._answers.pop(0))
            except OSError as error:
                raise PacelineError(f"processes cannot be started: the fork server ended ({error})") from error

    def ended(self, process_id: int) -> Ended | None:
        with self._lock:
            while self._read(0.0):
                pass
            if process_id in self._ended:
                return self._ended.pop(process_id)
            return None if self.alive else Ended(-signal.SIGKILL)  # its children ended with it

    def wait(self, timeout_s: float) -> None:
        """Until something has ended, or for so long."""
        with contextlib.suppress(OSError, ValueError):
            select.select([self.socket], [], [], timeout_s)

    def _read(self, timeout_s: float) -> bool:
        """Takes in one answer, if one comes in time."""
        while len(self._unread) < _ANSWER.size:
            try:
                if not select.select([self.socket], [], [], timeout_s)[0]:
                    return False
                more = self.socket.recv(4096)
            except (OSError, ValueError):
                return False
            if not more:
                return False
            self._unread += more
        process_id, status, cpu_s, peak = _ANSWER.unpack(self._unread[: _ANSWER.size])
        self._unread = self._unread[_ANSWER.size :]
        if status == _FORKED:
            self._answers.append(process_id)
        else:
            self._ended[process_id] = Ended(os.waitstatus_to_exitcode(status), cpu_s, peak)
        return True

    def close(self) -> None:
        self.socket.close()
        if self.owner == os.getpid():
            self.process.kill()
            self.process.wait()


def _here() -> str:
    """The current directory; empty if it was removed."""
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        return ""


def end_with(parent: int) -> None:
    """Asks the kernel to end this process with its parent, even if that ends by SIGKILL."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before we could ask
        os._exit(1)


# The fork server's own side


def _serve(connection: socket.socket, preload: Sequence[str]) -> None:
    wakes, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for name in preload:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # what is there now stays; children need not look through it, nor copy its pages
    while True:
        ready = select.select([connection.fileno(), wakes], [], [])[0]
        if wakes in ready:
            os.read(wakes, 4096)
            _report_exits(connection)
        if connection.fileno() in ready:
            header, descriptors, _, _ = socket.recv_fds(connection, _REQUEST.size, _MOST_DESCRIPTORS + 3)
            if not header:
                os._exit(0)  # who started us is gone, and our children go with us
            text = _received(connection, _REQUEST.unpack(header)[0])
            _fork(connection, text, descriptors, (wakes, wake))


def _received(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        more = connection.recv(count - len(found))
        if not more:
            os._exit(0)
        found += more
    return found


def _fork(connection: socket.socket, request: bytes, descriptors: list[int], pipe: tuple[int, int]) -> None:
    imports, target, text, directory, environment = json.loads(request)
    for name in imports:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    parent = os.getpid()
    process_id = os.fork()
    if process_id:
        for descriptor in descriptors:
            os.close(descriptor)
        connection.sendall(_ANSWER.pack(process_id, _FORKED, 0.0, 0))
        return
    try:
        end_with(parent)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        connection.close()
        for descriptor in pipe:
            os.close(descriptor)
        if directory:
            os.chdir(directory)
        os.environ.clear()
        os.environ.update(environment)
        module, _, function = target.partition(":")
        getattr(importlib.import_module(module), function)(text, descriptors)
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        os._exit(1)
    os._exit(0)


def _report_exits(connection: socket.socket) -> None:
    while True:
        try:
            process_id, status, used = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not process_id:
            return
        with contextlib.suppress(OSError):
            cpu_s, peak = used.ru_utime + used.ru_stime, used.ru_maxrss * 1024
            connection.sendall(_ANSWER.pack(process_id, status, cpu_s, peak))


if __name__ == "__main__":
    end_with(int(sys.argv[2]))
    _serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[3:])
