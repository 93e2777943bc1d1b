"""The directory of a run: where its record and its checkpoint are."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from paceline.errors import CheckpointError, OutputError
from paceline.train.checkpoint import NAME


def check_new(path: Path) -> None:
    """Refuses a directory that holds something: a run never overwrites another."""
    try:
        taken = path.exists() and (not path.is_dir() or any(path.iterdir()))
    except OSError as error:
        raise OutputError(f"--out {path} cannot be read: {error.strerror}") from error
    if taken and not path.is_dir():
        raise OutputError(f"--out {path} is a file: choose a directory")
    if taken:
        raise OutputError(f"--out {path} is not empty: choose another, or go on with --resume {path}")


def new_directory(path: Path) -> Path:
    """`path`, made if it is missing, empty and writable."""
    check_new(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / f".probe.{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise OutputError(f"--out {path} cannot be written: {error.strerror}") from error
    return path


def next_directory(name: str, parent: Path = Path("runs")) -> Path:
    """The first of runs/NAME-1, runs/NAME-2, … that is not taken, made at once so that no one else takes it."""
    word = re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-")[:60] or "run"
    number = 1
    while True:
        path = parent / f"{word}-{number}"
        try:
            path.mkdir(parents=True)
            return path
        except FileExistsError:
            number += 1
        except OSError as error:
            raise OutputError(f"{path} cannot be made: {error.strerror}; name a place with --out") from error


def remove_if_empty(path: Path) -> None:
    """Takes back a directory in which nothing came to be, and its parent if nothing else is there."""
    with contextlib.suppress(OSError):
        path.rmdir()
        path.parent.rmdir()


def resumable_directory(path: Path) -> Path:
    if not path.is_dir():
        raise CheckpointError(f"--resume {path}: there is no such directory")
    if not (path / NAME).exists():
        raise CheckpointError(
            f"--resume {path}: it has no {NAME}; the run stopped before its first one, start it again"
        )
    return path
