"""The directory of an experiment, which one process at a time works in.

    experiment.toml    as it was given
    experiment.json    as it was parsed
    runs/NAME/         one per finished run: its records, outcome.json and log.txt
    working/           unfinished runs
    results.csv, summary.csv

A run is written to `working` and moved to `runs` by one rename when it is complete.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from paceline import record
from paceline.directory_lock import LOCK, DirectoryLock
from paceline.errors import InputError, OutputError, RecordError, a_type
from paceline.experiment.experiment import Experiment, changed
from paceline.output_directory import next_directory, writable

EXPERIMENT, TOML, RUNS, WORKING = "experiment.json", "experiment.toml", "runs", "working"
DAMAGED = "damaged"


@contextmanager
def locked_experiment(directory: Path) -> Iterator[None]:
    """Locks the directory against other processes. The kernel releases the lock when its process ends."""
    with writable(str(directory)):
        lock = DirectoryLock(
            directory, lambda who: f"{directory} is in use by another compare{who}: wait until it ends"
        )
    with lock:
        yield


@contextmanager
def new_place(out: Path, experiment: Experiment, text: str) -> Iterator[Path]:
    """`out`, locked, with the experiment in it."""
    if out.exists() and not out.is_dir():
        raise OutputError(f"`out={str(out)!r}` is a file: choose a directory")
    with writable(f"`out={str(out)!r}`"):
        out.mkdir(parents=True, exist_ok=True)
    _check_new(out, experiment)  # before the lock file is written
    with locked_experiment(out):
        _check_new(out, experiment)  # another process may have been first
        if text:
            record.write_atomically(out / TOML, text)
        record.save(experiment, out / EXPERIMENT)
        yield out


def _check_new(out: Path, experiment: Experiment) -> None:
    if (out / EXPERIMENT).exists():
        try:
            before = record.load(out / EXPERIMENT)
        except RecordError:
            before = None
        if isinstance(before, Experiment) and not changed(record.to_json(before), record.to_json(experiment)):
            raise OutputError(f"`out={str(out)!r}` holds this experiment already: continue with `resume={str(out)!r}`")
        which = f" ({before.name})" if isinstance(before, Experiment) else ""
        raise OutputError(f"`out={str(out)!r}` holds another experiment{which}: choose another directory")
    # A process that was killed right after its start leaves these, and nothing else.
    if any(path.name not in (LOCK, TOML) and not path.name.startswith(f".{TOML}") for path in out.iterdir()):
        raise OutputError(f"`out={str(out)!r}` is not empty: choose another directory")


def saved_experiment(directory: str | Path) -> Experiment:
    directory = Path(directory)
    if not directory.is_dir():
        raise InputError(f"{directory}: no such directory")
    if not (directory / EXPERIMENT).exists():
        raise InputError(f"{directory} holds no experiment: start one with `out`")
    found = record.load(directory / EXPERIMENT)
    if not isinstance(found, Experiment):
        raise RecordError(f"{directory / EXPERIMENT} holds {a_type(found)}, not an experiment")
    return found


@contextmanager
def old_place(directory: Path, experiment: Experiment, text: str = "") -> Iterator[Path]:
    """`directory`, locked, which must hold `experiment`; fields that may change are updated."""
    before = saved_experiment(directory)
    if differences := changed(record.to_json(before), record.to_json(experiment)):
        more = f" and {len(differences) - 3} more" if len(differences) > 3 else ""
        raise InputError(
            f"{directory} holds another experiment: {'; '.join(differences[:3])}{more}; start it with `out`"
        )
    with locked_experiment(directory):
        if text:
            record.write_atomically(directory / TOML, text)
        if experiment != before:
            record.save(experiment, directory / EXPERIMENT)
        yield directory


def clear_working(directory: Path) -> Path:
    """Empties `working`: unfinished runs of a killed process cannot be continued."""
    working = directory / WORKING
    shutil.rmtree(working, ignore_errors=True)
    with writable(str(working)):
        working.mkdir(exist_ok=True)
        (directory / RUNS).mkdir(exist_ok=True)
    return working


def put_aside(run: Path, directory: Path, folder: str) -> Path:
    """Moves a run out of the results, so that it is repeated."""
    return run.rename(next_directory(run.name, directory / folder))


def move_into_place(made: Path, final: Path) -> None:
    """One rename, so that a run is complete or absent; synced, so that a power failure does not undo it."""
    made.rename(final)
    descriptor = os.open(final.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
