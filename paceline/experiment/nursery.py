"""A process that has imported everything and forks one process a run, so that a run begins within milliseconds.

It ends with the process that executes the experiment, and the runs end with it, whatever happens. It computes nothing
itself: threads and GPUs that were in use could not be forked.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import socket
import sys
from typing import Any

from paceline import record
from paceline.train.local.start import end_with


class Nursery:
    def __init__(self, channel: socket.socket) -> None:
        self.channel = channel
        self.unread = b""
        self.runs: dict[int, int] = {}
        """Numbers by process."""
        self.bell, ringing = socket.socketpair()
        for end in (self.bell, ringing):
            end.setblocking(False)
        self.ringing = ringing
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # the wake-up below is only for signals that are handled
        signal.set_wakeup_fd(ringing.fileno(), warn_on_full_buffer=False)

    def work(self) -> None:
        self._tell({"ready": True})
        while True:
            ready, _, _ = select.select([self.channel, self.bell], [], [])
            if self.bell in ready:
                self.bell.recv(1024)
            if self.channel in ready and not self._listen():
                break
            self._gather()
        for process in self.runs:
            _kill(process)
        while self.runs:
            self._gather(wait=True, tell=False)

    def _listen(self) -> bool:
        """Does what it is told; False when there is nobody to tell it anything."""
        try:
            received = self.channel.recv(1 << 16)
        except ConnectionError:
            return False
        *lines, self.unread = (self.unread + received).split(b"\n")
        for line in lines:
            said = json.loads(line)
            if "start" in said:
                self._start(said["start"], said["task"])
            for process in [p for p, number in self.runs.items() if number == said.get("kill")]:
                _kill(process)
        return bool(received)

    def _start(self, number: int, task: dict[str, Any]) -> None:
        nursery = os.getpid()
        process = os.fork()
        if process:
            self.runs[process] = number
            return
        code = 1
        try:
            end_with(nursery)
            self._leave()
            code = _become(task)
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)

    def _leave(self) -> None:
        """A run has nothing of what the nursery has but its modules."""
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        os.setpgid(0, 0)
        for end in (self.channel, self.bell, self.ringing):
            end.close()

    def _gather(self, wait: bool = False, tell: bool = True) -> None:
        while self.runs:
            process, status, used = os.wait4(-1, 0 if wait else os.WNOHANG)
            if not process:
                return
            number = self.runs.pop(process)
            if tell:
                code = os.waitstatus_to_exitcode(status)
                cpu_s = used.ru_utime + used.ru_stime
                self._tell({"ended": number, "code": code, "cpu_s": cpu_s, "peak": used.ru_maxrss * 1024})

    def _tell(self, message: dict[str, Any]) -> None:
        self.channel.sendall(json.dumps(message).encode() + b"\n")


def _kill(process: int) -> None:
    """With all that it started and that has not gone its own way; what has, ends with its parent."""
    for end in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError):
            end(process, signal.SIGKILL)


def _become(text: dict[str, Any]) -> int:
    from paceline.experiment.one_run import Task, make

    task: Task = record.from_json(Task, text, "task")
    log = os.open(task.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    if task.cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, task.cores)  # what looks for cores finds those of this run
    return make(task)


def _import_everything() -> None:
    import torch

    import paceline.experiment.one_run
    import paceline.measure.measuring
    import paceline.report.page
    import paceline.simulate.timing
    import paceline.train.local
    import paceline.train.trainer
    import paceline.train.virtual_run  # noqa: F401

    assert not torch.cuda.is_initialized(), "a GPU in use cannot be forked"
    gc.collect()
    gc.freeze()  # the collector of a run need not touch, and so copy, what it shares with the others


if __name__ == "__main__":
    settings = json.loads(sys.argv[1])
    channel = socket.socket(fileno=settings["channel"])
    _import_everything()
    Nursery(channel).work()
