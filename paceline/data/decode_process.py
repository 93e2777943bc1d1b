"""The trainer's side of one decoding process: gives tasks, collects answers, replaces it when it dies."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

from paceline.child_environment import child_environment
from paceline.data.decode_worker import ANSWER, TASK, Settings

_READ_BYTES = 1 << 16
_KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(256 << 20)}
"""For glibc: memory of an image is used for the next one. Getting fresh pages for each takes a third of the time."""


@dataclass(frozen=True)
class DecodeTask:
    """Positions of a slot that one decoder fills. `deaths` counts the decoders that died over it."""

    slot: int
    start: int
    stop: int
    deaths: int = 0

    def __len__(self) -> int:
        return self.stop - self.start


class DecodeProcess:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._unread = b""
        self.tasks: deque[DecodeTask] = deque()
        """Not answered yet, in the order in which the decoder works on them."""
        self._process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        # -P: a file called numpy.py in the current folder must not be imported.
        python = [sys.executable, "-P", "-W", "ignore"]
        return subprocess.Popen(
            [*python, "-m", "paceline.data.decode_worker", json.dumps(asdict(self._settings))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            pass_fds=(self._settings.ring_descriptor, self._settings.paths_descriptor),
            env=child_environment() | (_KEEP_MEMORY if self._settings.fast else {}),
            # A process group of its own: Ctrl-C is for the trainer, which then closes us.
            process_group=0,
        )

    @property
    def process_id(self) -> int:
        return self._process.pid

    @property
    def waiting(self) -> int:
        """Samples not decoded yet."""
        return sum(len(task) for task in self.tasks)

    def fileno(self) -> int:
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def give(self, task: DecodeTask) -> None:
        self.tasks.append(task)
        self._send(task)

    def _send(self, task: DecodeTask) -> None:
        assert self._process.stdin is not None
        # A dead decoder shows when its answers are read; `restart` then sends everything again.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(TASK.pack(task.slot, task.start, task.stop))

    def answers(self) -> Iterator[tuple[DecodeTask, str]]:
        """Finished tasks with their error message, if any. Raises `EOFError` when the decoder is dead."""
        read = os.read(self.fileno(), _READ_BYTES)
        if not read:
            raise EOFError
        self._unread += read
        while len(self._unread) >= ANSWER.size:
            *_, length = ANSWER.unpack_from(self._unread)
            end = ANSWER.size + length
            if len(self._unread) < end:
                return
            message = self._unread[ANSWER.size : end].decode()
            self._unread = self._unread[end:]
            yield self.tasks.popleft(), message

    def restart(self) -> DecodeTask | None:
        """Starts a new process for the unanswered tasks; the first of them, over which the old one died."""
        self.stop()
        self._unread = b""
        if self.tasks:
            self.tasks[0] = replace(self.tasks[0], deaths=self.tasks[0].deaths + 1)
        self._process = self._started()
        for task in self.tasks:
            self._send(task)
        return self.tasks[0] if self.tasks else None

    def stop(self) -> None:
        """Ends the process at once: what it holds is either delivered or not wanted."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
