"""A new directory for the files of a run, measurement or simulation: nobody else's, and locked while it is written."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from paceline.directory_lock import LOCK, DirectoryLock
from paceline.errors import OutputError


@contextlib.contextmanager
def claimed(out: str | Path | None) -> Iterator[Path | None]:
    """A new directory for the files of a run, measurement or simulation; None if none is wanted.

    It is made if it is missing, and nobody else can claim it before the block ends, or this process is dead. If
    nothing was written there, it is removed again.
    """
    if out is None:
        yield None
        return
    path, made = Path(out), list[Path]()
    check_new(path)
    with contextlib.ExitStack() as stack:
        stack.callback(_remove, made)
        with writable(f"`out={str(path)!r}`"):
            stack.enter_context(_make_and_lock(path, made))
        check_new(path)  # a run may have come and gone between the first check and the lock
        yield path


@contextlib.contextmanager
def writable(place: str) -> Iterator[None]:
    """Errors of the file system while something is written become one line that names the `place`."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"{place} cannot be written: {error.strerror}") from error


def _make_and_lock(path: Path, made: list[Path]) -> DirectoryLock:
    while True:
        missing = [place for place in (path, *path.parents) if not place.exists()]
        path.mkdir(parents=True, exist_ok=True)
        made[:] = missing
        with contextlib.suppress(FileNotFoundError):  # someone else, who failed to start in it, has removed it again
            return DirectoryLock(
                path, lambda who: f"`out={str(path)!r}` belongs to a run that has just started{who}: choose another"
            )


def _remove(made: list[Path]) -> None:
    """Directories that are still empty, the innermost first."""
    with contextlib.suppress(OSError):
        for place in made:
            place.rmdir()


def check_new(path: Path) -> None:
    """Refuses a directory that holds something besides a lock: a run never overwrites another."""
    try:
        taken = path.exists() and (not path.is_dir() or any(inside.name != LOCK for inside in path.iterdir()))
    except OSError as error:
        raise OutputError(f"`out={str(path)!r}` cannot be read: {error.strerror}") from error
    if taken and not path.is_dir():
        raise OutputError(f"`out={str(path)!r}` is a file: choose a directory")
    if taken:
        raise OutputError(f"`out={str(path)!r}` is not empty: choose another directory, or resume the run in it")


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
            raise OutputError(f"{path} cannot be created: {error.strerror}; name a place with `out`") from error


@contextlib.contextmanager
def given_or_next(out: Path | None, name: str) -> Iterator[Path]:
    """`out`, or the next directory of this name. That one is removed again if the block fails and wrote nothing."""
    path = next_directory(name) if out is None else out
    try:
        yield path
    except BaseException:
        if out is None:
            _remove([path, path.parent])
        raise
