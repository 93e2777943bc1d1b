"""Executes one run of an experiment, in its own process."""

from __future__ import annotations

import functools
import json
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from paceline import record
from paceline.errors import Diverged, PacelineError, reason
from paceline.experiment.keys import setup_of
from paceline.measurement.feeding import feed_stand_ins
from paceline.measurement.feeding_images import feed_images
from paceline.measurement.measuring import measure
from paceline.reporting.record_files import context_of, write_measured, write_measurement
from paceline.results.outcome import PlannedRun
from paceline.settings import pick
from paceline.simulation.timing import time_workload
from paceline.step.failures import explained
from paceline.training.distributing import build_cluster, cluster_words
from paceline.training.driver import CHECKPOINT_EVERY_S
from paceline.training.evaluate import time_validation
from paceline.training.measured_training import TrainingClock
from paceline.training.run import Epoch, Run
from paceline.training.settings import RunSettings
from paceline.training.step_choice import choose_step
from paceline.training.watcher import Progress, Several, Watcher

TELL_EVERY_S = 1.0
FED_ITERATIONS = 200


@dataclass(frozen=True)
class RunTask:
    """The input of the process. Paths are absolute."""

    run: PlannedRun
    directory: str  # for the run's records; does not exist yet
    cache: str  # directory of the data sets; empty: the default one
    cores: tuple[int, ...]
    search_path: tuple[str, ...]
    checkpoints: bool = True  # whether to save trained parameters
    tensorboard: str = ""  # directory for the run's events; empty: none

    @property
    def cache_folder(self) -> Path | None:
        return Path(self.cache) if self.cache else None

    def beside(self, ending: str) -> Path:
        """A file beside the directory: `.log`, `.progress` (from 0 to 1), or `.told` with the outcome."""
        return Path(self.directory).with_suffix(ending)


class _Told:
    """A training watcher that prints to the log and writes the progress to a file."""

    def __init__(self, file: Path) -> None:
        self.file, self.told_s = file, 0.0

    def begun(self, run: Run, notes: list[str]) -> None:
        for note in notes:
            print(note, flush=True)
        print(f"step: {run.step.kind} ({run.step.reason}); data: {run.data}", flush=True)

    def advanced(self, progress: Progress) -> None:
        self.part((progress.epoch + progress.step / max(1, progress.steps)) / progress.epochs)

    def finished_epoch(self, epoch: Epoch, run: Run) -> None:
        figures = f"loss {epoch.loss:.4f}  test loss {epoch.test_loss:.4f}  test accuracy {epoch.test_accuracy:.4f}"
        figures += f"  test {run.metric} {epoch.test_metric:.4g}" if run.metric else ""
        print(f"epoch {epoch.epoch}  {figures}  {epoch.wall_s:.2f} s", flush=True)

    def done(self, done: int, all_: int) -> None:
        self.part(done / all_)

    def part(self, done: float) -> None:
        if monotonic() - self.told_s > TELL_EVERY_S:
            self.told_s = monotonic()
            self.file.write_text(f"{done:.4f}")


def make(task: RunTask) -> int:
    """Executes the run and writes its outcome to a file. Returns the exit code of the process."""
    sys.path.extend(place for place in task.search_path if place not in sys.path)
    status, error = "finished", ""
    try:
        _make(task)
    except Diverged as raised:
        status, error = "diverged", str(raised)
    except PacelineError as raised:
        status, error = "failed", str(raised)
    except MemoryError:
        status, error = "failed", "out of memory"
    except Exception as raised:
        traceback.print_exc()
        status, error = "failed", reason(raised)
    except (SystemExit, KeyboardInterrupt) as raised:  # raised by user code
        status, error = "failed", f"ended by {type(raised).__name__} {raised}".strip()
    if error:
        print(f"{status}: {error}", flush=True)
    record.write_atomically(task.beside(".told"), json.dumps({"status": status, "error": error}))
    return 0 if status == "finished" else 1


def _make(task: RunTask) -> None:
    words = RunSettings(**pick(RunSettings, task.run.settings))
    makers = {"train": _train, "measure": _measure, "simulate": _simulate, "feed": _feed}
    makers[words.kind](task, words, _Told(task.beside(".progress")))


@contextmanager
def _followed(watcher: Watcher, task: RunTask) -> Iterator[Watcher]:
    """The watcher, combined with one for TensorBoard if requested."""
    if not task.tensorboard:
        yield watcher
        return
    from paceline.reporting.tensorboard import TensorBoard

    with TensorBoard(Path(task.tensorboard), task.run.settings, task.run.setting) as board:
        yield Several(watcher, board)


def _train(task: RunTask, words: RunSettings, watcher: _Told) -> None:
    out, setup = Path(task.directory), setup_of(task.run.settings)
    alone = setup.strategy is None
    clock = TrainingClock() if words.measure and alone else None
    with _followed(watcher, task) as followed:
        run = setup.train(
            task.run.workload, out=out, cache=task.cache_folder, watcher=followed, clock=clock,
            step=words.step if alone else "auto", measure=out / "measure" if words.measure and not alone else None,
            checkpoint_every_s=CHECKPOINT_EVERY_S if task.checkpoints or not alone else None,
        )  # fmt: skip
        if clock is not None:
            write_measured(run, out, clock)


def _measure(task: RunTask, words: RunSettings, watcher: _Told) -> None:
    workload, cache, directory = task.run.workload, task.cache_folder, Path(task.directory)
    with explained(workload):
        choose = functools.partial(choose_step, asked=words.step)
        found = measure(workload, choose=choose, iterations=words.iterations, cache=cache, watch=watcher.done)
    directory.mkdir(parents=True)
    write_measurement(found, directory, context_of(found, time_validation(workload, cache=cache)))


def _simulate(task: RunTask, words: RunSettings, watcher: _Told) -> None:
    setup = setup_of(task.run.settings)
    assert setup.strategy is not None
    found = time_workload(
        task.run.workload, setup.strategy, setup.workers, words.steps, build_cluster(setup.cluster),
        cluster_words(setup.cluster), cache=task.cache_folder,
    )  # fmt: skip
    record.save(found, Path(task.directory) / "record.json")


def _feed(task: RunTask, words: RunSettings, watcher: _Told) -> None:
    feed = functools.partial(feed_images, task.run.workload)
    if words.devices:
        feed = functools.partial(feed_stand_ins, words.devices, refresh_s=words.refresh, compute_s=words.compute)
    found = feed(ahead=words.ahead, iterations=words.iterations or FED_ITERATIONS, watch=watcher.done)
    record.save(found, Path(task.directory) / "record.json")
