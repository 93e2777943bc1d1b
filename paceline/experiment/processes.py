"""Runs as they are being made: their processes, and their files in `working`, which become the run's directory."""

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
"""What runs need, imported once for all of them."""
LOG = "log.txt"
LONGEST = 120


class Processes:
    """Starts runs, and reports which ended. All of them end with it, and with this process."""

    def __init__(self) -> None:
        # The kernel ends it with the thread that started it, so this has to be the main one.
        self.server = process_server()
        self.forked: dict[int, Forked] = {}

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *error: object) -> None:
        """Ends all of them, and waits until they are gone."""
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
        """With all that it started and that has not a process group of its own; what has, ends with its parent."""
        process = self.forked[number]
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.process_id, signal.SIGKILL)
            process.signal(signal.SIGKILL)

    def wait(self, seconds: float) -> dict[int, Ended]:
        """The runs that have ended, by number, at most `seconds` from now."""
        self.server.wait(seconds)
        if not self.server.alive and self.forked:
            raise Lost("the process that starts the runs ended unexpectedly")
        over = {number: ended for number, process in self.forked.items() if (ended := process.poll()) is not None}
        for number in over:
            del self.forked[number]
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


@dataclass
class Attempt:
    run: PlannedRun
    working: Path
    """Where the run's records come to be; files beside it have its name and an ending."""
    slot: int
    """Which of the jobs it is, and so which cores it has."""
    cores: tuple[int, ...]
    began_s: float = field(default_factory=monotonic)
    started: str = field(default_factory=lambda: datetime.now().astimezone().isoformat(timespec="seconds"))
    ended_by_us: str = ""
    """Why this process ended the run; empty if it did not."""

    @property
    def seconds(self) -> float:
        return monotonic() - self.began_s

    def _file(self, ending: str) -> Path:
        return self.working.with_suffix(ending)

    def task(self, cache: Path | None, checkpoints: bool = True, tensorboard: Path | None = None) -> RunTask:
        """What its process is told, where nothing is left of an attempt before."""
        board = folder_of(self.run, tensorboard) if tensorboard is not None else None
        shutil.rmtree(self.working, ignore_errors=True)
        for ending in (".told", ".progress", ".log"):
            self._file(ending).unlink(missing_ok=True)
        return RunTask(
            run=self.run,
            directory=str(self.working.resolve()),
            cache=str(cache.resolve()) if cache is not None else "",
            cores=self.cores,
            checkpoints=checkpoints,
            tensorboard=str(board.resolve()) if board is not None else "",
            search_path=tuple(str(Path(place or ".").resolve()) for place in (*sys.path, "")),
        )

    def part(self) -> float:
        """How much of it is done, as far as it has told."""
        try:
            return float(self._file(".progress").read_text())
        except (OSError, ValueError):
            return 0.0

    def _told(self, ended: Ended) -> tuple[str, str]:
        if self.ended_by_us:
            return "failed", self.ended_by_us
        try:
            told = json.loads(self._file(".told").read_text(encoding="utf-8"))
            return str(told["status"]), str(told["error"])
        except (OSError, ValueError, KeyError):
            return "failed", f"its process {ended.how}"

    def keep(self, ended: Ended, final: Path, *, planned: int, checkpoints: bool) -> None:
        """Writes what became of it into its directory, as the last thing, and moves that into place."""
        status, error = self._told(ended)
        self.working.mkdir(exist_ok=True)
        with suppress(FileNotFoundError):
            self._file(".log").rename(self.working / LOG)
        if not checkpoints:
            (self.working / CHECKPOINT).unlink(missing_ok=True)
        made = RunOutcome(
            self.run, planned, status, error.replace(str(self.working.resolve()), str(final)), self.started,
            process_s=self.seconds, cpu_s=ended.cpu_s, peak_memory_bytes=ended.peak_memory_bytes,
            cores=len(self.cores),
        )  # fmt: skip
        record.save(made, self.working / outcome.FILE)
        move_into_place(self.working, final)
        for ending in (".told", ".progress"):
            self._file(ending).unlink(missing_ok=True)


def folder_of(run: PlannedRun, directory: Path) -> Path | None:
    """`sync,8-workers-1a2b3c4d5e-1`, which a filter finds by any part; only a training has curves."""
    if run.kind != "train":
        return None
    words = (run.label or run.workload.network).replace(" · ", ",")
    return directory / f"{re.sub(r'[^A-Za-z0-9.,=_+]+', '-', words)[:LONGEST]}-{run.id}"


def check_folders(runs: Iterable[PlannedRun], directory: Path, *, new: bool) -> None:
    """Says before the first run what would keep any from writing."""
    from paceline.reporting.tensorboard import check_unused, check_writable

    check_writable(directory)
    boards = [board for run in runs if (board := folder_of(run, directory)) is not None]
    if not boards:
        raise InputError('`tensorboard` needs runs of kind "train", and this experiment has none')
    for board in boards if new else ():
        check_unused(board)
