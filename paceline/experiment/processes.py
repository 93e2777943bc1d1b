"""Active runs: their processes, and their files in `working`, which become the run's directory."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from time import monotonic

from paceline import record
from paceline.errors import InputError, PacelineError
from paceline.experiment.directory import move_into_place
from paceline.experiment.one_run import RunTask, make
from paceline.fork_server import Ended, Forked
from paceline.results import outcome
from paceline.results.outcome import PlannedRun, RunOutcome
from paceline.training.checkpoint import NAME as CHECKPOINT
from paceline.training.drivers.local.process_server import process_server

IMPORTS = (
    "paceline.experiment.processes", "paceline.measurement.measuring", "paceline.reporting.page",
    "paceline.simulation.timing", "paceline.training.trainer", "paceline.training.virtual_run",
    "paceline.training.drivers.local.launcher",
)  # fmt: skip
"""Modules that runs need; the fork server imports them once."""
LOG = "log.txt"
LONGEST = 120


class Processes:
    """Starts runs and reports which have ended. All runs are killed when this object or process ends."""

    def __init__(self) -> None:
        # The kernel kills the server with the thread that started it, so this must be the main thread.
        self.server = process_server()
        self.forked: dict[int, Forked] = {}

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *error: object) -> None:
        for number in self.forked:
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
        """Kills its process group; processes with their own group end with their parent."""
        process = self.forked[number]
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.process_id, signal.SIGKILL)
            process.signal(signal.SIGKILL)

    def wait(self, seconds: float) -> dict[int, Ended]:
        """Waits for up to `seconds`; returns the runs that have ended, by number."""
        self.server.wait(seconds)
        if not self.server.alive and self.forked:
            raise Lost("the process that starts the runs ended unexpectedly")
        over = {number: ended for number, process in self.forked.items() if (ended := process.poll()) is not None}
        for number in over:
            del self.forked[number]
        return over


class Lost(PacelineError):
    """The fork server died, and all runs with it."""


def become(text: str, _: list[int]) -> None:
    """Turns a forked process into a run, with its own log and cores."""
    task: RunTask = record.from_json(RunTask, json.loads(text), "task")
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.setpgid(0, 0)
    log = os.open(task.beside(".log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    if task.cores:
        os.sched_setaffinity(0, task.cores)  # PyTorch and others count these cores
    code = make(task)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


@dataclass
class Attempt:
    """A run and its process; files of an earlier attempt are removed."""

    task: RunTask
    slot: int  # index of the job, which determines its cores
    began_s: float = field(default_factory=monotonic)
    started: str = field(default_factory=lambda: datetime.now().astimezone().isoformat(timespec="seconds"))
    ended_by_us: str = ""  # why this process ended the run; empty if it did not

    def __post_init__(self) -> None:
        shutil.rmtree(self.task.directory, ignore_errors=True)
        for ending in (".told", ".progress", ".log"):
            self.task.beside(ending).unlink(missing_ok=True)

    @property
    def seconds(self) -> float:
        return monotonic() - self.began_s

    def part(self) -> float:
        """The share that is done, as last reported."""
        try:
            return float(self.task.beside(".progress").read_text())
        except (OSError, ValueError):
            return 0.0

    def _told(self, ended: Ended) -> tuple[str, str]:
        if self.ended_by_us:
            return "failed", self.ended_by_us
        try:
            told = json.loads(self.task.beside(".told").read_text(encoding="utf-8"))
            return str(told["status"]), str(told["error"])
        except (OSError, ValueError, KeyError):
            return "failed", f"its process {ended.how}"

    def keep(self, ended: Ended, final: Path, *, planned: int) -> None:
        """Writes the outcome into the run's directory, as the last file, and moves the directory into place."""
        status, error = self._told(ended)
        task, directory = self.task, Path(self.task.directory)
        directory.mkdir(exist_ok=True)
        with suppress(FileNotFoundError):
            task.beside(".log").rename(directory / LOG)
        if not task.checkpoints:
            (directory / CHECKPOINT).unlink(missing_ok=True)
        made = RunOutcome(
            task.run, planned, status, error.replace(task.directory, str(final)), self.started,
            process_s=self.seconds, cpu_s=ended.cpu_s, peak_memory_bytes=ended.peak_memory_bytes,
            cores=len(task.cores),
        )  # fmt: skip
        record.save(made, directory / outcome.FILE)
        move_into_place(directory, final)
        for ending in (".told", ".progress"):
            task.beside(ending).unlink(missing_ok=True)


def folder_of(run: PlannedRun, directory: Path) -> Path | None:
    """For example `sync,8-workers-1a2b3c4d5e-1`, for filters in TensorBoard; None if the run is not a training."""
    if run.kind != "train":
        return None
    words = (run.label or run.workload.network).replace(" · ", ",")
    return directory / f"{re.sub(r'[^A-Za-z0-9.,=_+]+', '-', words)[:LONGEST]}-{run.id}"


def check_folders(runs: Iterable[PlannedRun], directory: Path, *, new: bool) -> None:
    """Raises an error before the first run if events cannot be written."""
    from paceline.reporting.tensorboard import check_unused, check_writable

    check_writable(directory)
    boards = [board for run in runs if (board := folder_of(run, directory)) is not None]
    if not boards:
        raise InputError('`tensorboard` needs runs of kind "train", and this experiment has none')
    for board in boards if new else ():
        check_unused(board)
