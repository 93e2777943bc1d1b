"""One run as it is being made: its files in `working`, and how they become the run's directory."""

from __future__ import annotations

import json
import shutil
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from time import monotonic

from paceline import record
from paceline.experiment.experiment_directory import move_into_place
from paceline.experiment.one_run import RunTask
from paceline.experiment.planning import PlannedRun
from paceline.experiment.processes import EndedRun
from paceline.experiment.tensorboard_folders import folder_of
from paceline.results import outcome
from paceline.results.outcome import RunOutcome
from paceline.training.checkpoint import NAME as CHECKPOINT

LOG = "log.txt"


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")


@dataclass
class Attempt:
    run: PlannedRun
    working: Path
    """Where the run's records come to be; files beside it have its name and an ending."""
    slot: int
    """Which of the jobs it is, and so which cores it has."""
    cores: tuple[int, ...]
    began_s: float = field(default_factory=monotonic)
    started: str = field(default_factory=_now)
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
            settings=self.run.settings,
            workload=self.run.workload,
            directory=str(self.working.resolve()),
            cache=str(cache.resolve()) if cache is not None else "",
            cores=self.cores,
            checkpoints=checkpoints,
            tensorboard=str(board.resolve()) if board is not None else "",
            setting=self.run.setting,
            search_path=tuple(str(Path(place or ".").resolve()) for place in (*sys.path, "")),
        )

    def part(self) -> float:
        """How much of it is done, as far as it has told."""
        try:
            return float(self._file(".progress").read_text())
        except (OSError, ValueError):
            return 0.0

    def _told(self, ended: EndedRun) -> tuple[str, str]:
        if self.ended_by_us:
            return "failed", self.ended_by_us
        try:
            told = json.loads(self._file(".told").read_text(encoding="utf-8"))
            return str(told["status"]), str(told["error"])
        except (OSError, ValueError, KeyError):
            return "failed", ended.how

    def keep(self, ended: EndedRun, final: Path, *, planned: int, checkpoints: bool) -> None:
        """Writes what became of it into its directory, as the last thing, and moves that into place."""
        run = self.run
        status, error = self._told(ended)
        self.working.mkdir(exist_ok=True)
        with suppress(FileNotFoundError):
            self._file(".log").rename(self.working / LOG)
        if not checkpoints:
            (self.working / CHECKPOINT).unlink(missing_ok=True)
        made = RunOutcome(
            run=run.id, number=run.number, planned=planned, setting=run.setting, repetition=run.repetition,
            trial=run.trial, settings=run.settings, workload=run.workload, workers=run.workers, label=run.label,
            status=status, error=error.replace(str(self.working.resolve()), str(final)), started=self.started,
            process_s=self.seconds, cpu_s=ended.cpu_s, peak_memory_bytes=ended.peak_memory_bytes,
            cores=len(self.cores),
        )  # fmt: skip
        record.save(made, self.working / outcome.FILE)
        move_into_place(self.working, final)
        for ending in (".told", ".progress"):
            self._file(ending).unlink(missing_ok=True)
