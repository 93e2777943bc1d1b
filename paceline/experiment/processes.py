"""The processes of an experiment's runs, as the one that executes it has them."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from time import monotonic

from paceline.child_environment import child_environment
from paceline.errors import PacelineError
from paceline.experiment.one_run import Task
from paceline.record import to_json
from paceline.train.local import start

STARTING_S = 300.0
"""Importing PyTorch from a slow disk takes a while."""
STOPPING_S = 10.0


@dataclass(frozen=True)
class Ended:
    number: int
    code: int
    cpu_s: float
    peak_memory_bytes: int

    @property
    def how(self) -> str:
        """For a process that could not tell by itself."""
        if self.code >= 0:
            return f"its process ended with exit code {self.code}"
        try:
            name = signal.Signals(-self.code).name
        except ValueError:
            name = f"signal {-self.code}"
        return f"its process was ended by {name}" + (", perhaps for want of memory" if name == "SIGKILL" else "")


class Processes:
    """Starts runs, and tells which ended. All of them end with it, and with this process."""

    def __init__(self) -> None:
        self.unread = b""
        self.running: set[int] = set()
        self.channel, theirs = socket.socketpair()
        with theirs:
            # The kernel ends it with the thread that started it, so this has to be the main one.
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-W", "ignore", start.__file__, str(os.getpid()),
                 "paceline.experiment.nursery", json.dumps({"channel": theirs.fileno()})],
                stdin=subprocess.DEVNULL, stdout=2, pass_fds=(theirs.fileno(),), env=child_environment(),
                process_group=0,  # Ctrl-C is for us, who then end it
            )  # fmt: skip
        self.ready = False

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *error: object) -> None:
        """Ends all of them, and waits until they are gone."""
        self.channel.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(STOPPING_S if self.ready else 0.0)
        self.process.kill()
        self.process.wait()

    def wait_until_ready(self, stop: object) -> None:
        deadline_s = monotonic() + STARTING_S
        while not self.ready and not getattr(stop, "made", False):
            self.wait(0.2)
            if monotonic() > deadline_s:
                raise PacelineError(f"the process that starts runs was not ready after {STARTING_S:.0f} s")

    def start(self, number: int, task: Task) -> None:
        self.running.add(number)
        self._tell({"start": number, "task": to_json(task)})

    def kill(self, number: int) -> None:
        self._tell({"kill": number})

    def wait(self, seconds: float) -> list[Ended]:
        """The runs that have ended, at most `seconds` from now."""
        ready, _, _ = select.select([self.channel], [], [], seconds)
        if not ready:
            return []
        try:
            received = self.channel.recv(1 << 16)
        except ConnectionError:
            received = b""
        if not received:
            if not self.ready:
                raise PacelineError("the process that starts runs could not begin; what it said is above")
            raise Lost("the process that starts runs ended by itself")
        *lines, self.unread = (self.unread + received).split(b"\n")
        ended = []
        for line in lines:
            said = json.loads(line)
            self.ready = self.ready or "ready" in said
            if "ended" in said:
                self.running.discard(said["ended"])
                ended.append(Ended(said["ended"], said["code"], said["cpu_s"], said["peak"]))
        return ended

    def _tell(self, message: dict[str, object]) -> None:
        try:
            self.channel.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise Lost("the process that starts runs ended by itself") from error


class Lost(PacelineError):
    """The nursery is gone, and all runs with it."""
