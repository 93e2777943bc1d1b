"""Executes an experiment: every run in its own process, saved when it finishes, and never repeated."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL
from time import monotonic

from paceline import data, user_code
from paceline.errors import InputError, Interrupted, PacelineError, WorkloadError
from paceline.experiment.core_assignment import cores_of_jobs, crowding
from paceline.experiment.directory import DAMAGED, RUNS, WORKING, clear_working, new_place, old_place, put_aside
from paceline.experiment.experiment import Experiment
from paceline.experiment.one_run import RunTask
from paceline.experiment.planning import interleaved
from paceline.experiment.processes import Attempt, Lost, Processes, check_folders, folder_of
from paceline.experiment.watcher import Estimate, ExperimentWatcher, Standing
from paceline.fork_server import Ended
from paceline.output_directory import next_directory
from paceline.results.outcome import PlannedRun
from paceline.results.run_row import Row
from paceline.results.table import ResultsTable, read_run, results_table
from paceline.training.stopping import StopRequest

POLL_INTERVAL_S = 0.2
WRITE_EVERY_S = 2.0
WRITING_SHARE = 0.05  # tables may take this much of the time
ATTEMPTS = 2
"""A run that was lost with the fork server is started again, once; the second time it counts as failed."""


def execute(
    experiment: Experiment,
    *,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    jobs: int = 1,
    retry: bool = False,
    cache: Path | None = None,
    progress: data.Progress | None = None,
    watcher: ExperimentWatcher | None = None,
    text: str = "",
    verb: str = "compare",
    tensorboard: Path | None = None,
) -> ResultsTable:
    """Executes all runs of `experiment` in a new directory, or those missing in `resume`, `jobs` at a time.

    `retry` repeats failed runs. `text` is the file that the experiment was read from; a copy is saved. `verb` is the
    function that resumes it. `tensorboard` is a directory in which every training writes events to its own folder.
    """
    module = user_code.importing()
    if module:
        raise WorkloadError(f'importing {module} starts an experiment; put that under: if __name__ == "__main__":')
    if out is not None and resume is not None:
        raise InputError("`out` and `resume` cannot be combined: what is resumed stays in its directory")
    if not isinstance(jobs, int) or jobs < 1:
        raise InputError(f"jobs={jobs} should be at least 1")
    planned = experiment.runs()
    if tensorboard is not None:
        check_folders(planned, tensorboard, new=resume is None)
    if resume is not None:
        place = old_place(Path(resume), experiment, text)
    else:
        place = new_place(Path(out) if out is not None else next_directory(experiment.name), experiment, text)
    with place as directory:
        execution = Execution(directory, experiment, planned, jobs, cache, watcher or ExperimentWatcher(), tensorboard)
        execution.find_finished_runs(retry)
        execution.fetch_data(progress)
        execution.run(verb)
        return execution.write()


@dataclass
class Execution:
    directory: Path
    experiment: Experiment
    planned: list[PlannedRun]
    jobs: int
    cache: Path | None
    watcher: ExperimentWatcher
    tensorboard: Path | None = None

    def __post_init__(self) -> None:
        self.rows: dict[str, Row] = {}  # by run id
        self.pending: list[PlannedRun] = []
        self.running: dict[int, Attempt] = {}
        self.lost: Counter[int] = Counter()  # how often a run was lost with the fork server
        self.working = clear_working(self.directory)
        self.cores = cores_of_jobs(self.jobs)
        self.notes = crowding(self.planned, self.cores, self.jobs)
        self.estimate = Estimate(self.jobs)
        self.written_s, self.writing_s = 0.0, 0.0

    def _final(self, run: PlannedRun) -> Path:
        return self.directory / RUNS / run.name

    def _row(self, run: PlannedRun) -> Row:
        return read_run(self._final(run), self.directory)

    def find_finished_runs(self, retry: bool) -> None:
        """Finds finished runs. Unreadable ones are repeated, and with `retry` failed ones."""
        for run in self.planned:
            place = self._final(run)
            if not place.exists():
                continue
            try:
                row = self._row(run)
            except PacelineError as error:
                aside = put_aside(place, self.directory, DAMAGED)
                self.notes.append(f"{run.name} cannot be read and is repeated ({error}); it was moved to {aside}")
                continue
            if retry and row["status"] == "failed":
                shutil.rmtree(put_aside(place, self.directory, WORKING), ignore_errors=True)
                continue
            self._add(run, row)
        self.pending = [run for run in interleaved(self.planned, self.experiment.seed) if run.id not in self.rows]

    def _add(self, run: PlannedRun, row: Row) -> None:
        self.rows[run.id] = row
        if row["status"] != "failed":
            self.estimate.learn(run, row["process_s"])

    def fetch_data(self, progress: data.Progress | None) -> None:
        """Downloads data once, before the runs start."""
        for name in dict.fromkeys(run.workload.data for run in self.pending):
            if data.is_missing(name, self.cache):
                data.fetch(name, cache=self.cache, progress=progress)

    def run(self, verb: str) -> None:
        self.watcher.begun(self.standing(), self.notes)
        with StopRequest() as stop:
            while self.pending or self.running:
                try:
                    with Processes() as processes:
                        self._run_with(processes, stop)
                except Lost:
                    self._repeat_lost_runs()
                if stop.made:
                    clear_working(self.directory)
                    self.write()
                    raise Interrupted(
                        f"interrupted after {len(self.rows)} of {len(self.planned)} runs; "
                        f"continue with: `paceline.{verb}(resume={str(self.directory)!r})`"
                    )

    def _run_with(self, processes: Processes, stop: StopRequest) -> None:
        while (self.pending or self.running) and not stop.made:
            while self.pending and len(self.running) < self.jobs:
                self._start(self.pending.pop(0), processes)
            self.watcher.advanced(self.standing())
            for number, ended in processes.wait(POLL_INTERVAL_S).items():
                self._finish(number, ended)
            self._kill_overdue_runs(processes)
            if monotonic() - self.written_s > max(WRITE_EVERY_S, self.writing_s / WRITING_SHARE):
                self.write()

    def _start(self, run: PlannedRun, processes: Processes) -> None:
        taken = {attempt.slot for attempt in self.running.values()}
        slot = next(slot for slot in range(self.jobs) if slot not in taken)
        board = folder_of(run, self.tensorboard) if self.tensorboard is not None else None
        task = RunTask(
            run=run,
            directory=str((self.working / run.id).resolve()),
            cache=str(self.cache.resolve()) if self.cache is not None else "",
            cores=self.cores[slot],
            checkpoints=self.experiment.checkpoints,
            tensorboard=str(board.resolve()) if board is not None else "",
            search_path=tuple(str(Path(place or ".").resolve()) for place in (*sys.path, "")),
        )
        self.running[run.number] = Attempt(task, slot)
        processes.start(run.number, task)

    def _kill_overdue_runs(self, processes: Processes) -> None:
        limit_s = self.experiment.timeout_s
        for number, attempt in self.running.items():
            if limit_s is not None and attempt.seconds > limit_s and not attempt.ended_by_us:
                attempt.ended_by_us = f"it took longer than timeout = {limit_s:g} s"
                processes.kill(number)

    def _repeat_lost_runs(self) -> None:
        for number in sorted(self.running, reverse=True):
            self.lost[number] += 1
            if self.lost[number] < ATTEMPTS:
                self.pending.insert(0, self.running.pop(number).task.run)
            else:
                self._finish(number, Ended(-SIGKILL))

    def _finish(self, number: int, ended: Ended) -> None:
        attempt = self.running.pop(number)
        run = attempt.task.run
        attempt.keep(ended, self._final(run), planned=len(self.planned))
        row = self._row(run)
        self._add(run, row)
        self.watcher.finished(run, row)

    def standing(self) -> Standing:
        running = [(attempt.task.run, attempt.seconds, attempt.part()) for attempt in self.running.values()]
        return Standing(
            directory=self.directory,
            done=len(self.rows),
            planned=len(self.planned),
            failed=sum(row["status"] == "failed" for row in self.rows.values()),
            running=tuple(run for run, _, _ in running),
            left_s=self.estimate.left_s(self.pending, running),
        )

    def write(self) -> ResultsTable:
        start_s = monotonic()
        directories = {str(row["directory"]): self.directory / row["directory"] for row in self.rows.values()}
        found = results_table(self.rows.values(), directories, (), self.experiment, str(self.directory))
        found.write(self.directory)
        self.written_s = monotonic()
        self.writing_s = self.written_s - start_s
        return found
