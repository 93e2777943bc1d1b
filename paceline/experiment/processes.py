"""The processes of an experiment's runs, as the one that executes it has them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from dataclasses import dataclass

from paceline import record
from paceline.errors import PacelineError
from paceline.experiment.one_run import RunTask, make
from paceline.fork_server import Forked
from paceline.training.drivers.local.process_server import process_server

IMPORTS = (
    "paceline.experiment.processes", "paceline.measurement.measuring", "paceline.reporting.page",
    "paceline.simulation.timing", "paceline.training.trainer", "paceline.training.virtual_run",
    "paceline.training.drivers.local.launcher",
)  # fmt: skip
"""What runs need, imported once for all of them."""


@dataclass(frozen=True)
class EndedRun:
    number: int
    code: int
    cpu_s: float
    peak_memory_bytes: int
    how: str
    """For a process that could not say it by itself."""


class Processes:
    """Starts runs, and reports which ended. All of them end with it, and with this process."""

    def __init__(self) -> None:
        # The kernel ends it with the thread that started it, so this has to be the main one.
        self.server = process_server()
        self.forked: dict[int, Forked] = {}

    @property
    def running(self) -> set[int]:
        return set(self.forked)

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *error: object) -> None:
        """Ends all of them, and waits until they are gone."""
        for number in self.running:
            self.kill(number)
        for process in self.forked.values():
            process.wait()

    def start(self, number: int, task: RunTask) -> None:
        text = json.dumps(record.to_json(task))
        try:
            self.forked[number] = self.server.fork("paceline.experiment.processes:become", text, imports=IMPORTS)
        except PacelineError as error:
            raise Lost(str(error)) from error

    def kill(self, number: int) -> None:
        """With all that it started and that has not a process group of its own; what has, ends with its parent."""
        process = self.forked[number]
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.process_id, signal.SIGKILL)
            process.signal(signal.SIGKILL)

    def wait(self, seconds: float) -> list[EndedRun]:
        """The runs that have ended, at most `seconds` from now."""
        self.server.wait(seconds)
        if not self.server.alive and self.forked:
            raise Lost("the process that starts runs ended by itself")
        over = []
        for number, process in list(self.forked.items()):
            ended = process.poll()
            if ended is not None:
                del self.forked[number]
                how = f"its process {ended.how}"
                over.append(EndedRun(number, ended.code, ended.cpu_s, ended.peak_memory_bytes, how))
        return over


class Lost(PacelineError):
    """The fork server is gone, and all runs with it."""


def become(text: str, _: list[int]) -> None:
    """A forked process becomes a run, with its own log and, if asked for, only some of the cores."""
    task: RunTask = record.from_json(RunTask, json.loads(text), "task")
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.setpgid(0, 0)
    log = os.open(task.beside(".log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    if task.cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, task.cores)  # what looks for cores finds those of this run
    code = make(task)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
