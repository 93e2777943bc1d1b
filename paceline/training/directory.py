"""The directory of a run: where its record and its checkpoint are, and who may write there."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from paceline.errors import CheckpointError, OutputError
from paceline.training.checkpoint import NAME
from paceline.training.directory_lock import LOCK, DirectoryLock, Locked

_ATTEMPTS = 100
"""To make a directory that someone else, who failed to start in it, removes again and again."""


class RunDirectory:
    """The directory of a run, which nobody else can claim until `close`, or until this process is dead.

    with RunDirectory.claim_new(path) as directory:
        record.save(run, directory.path / "record.json")
    """

    def __init__(self, path: Path, lock: DirectoryLock, made: list[Path]) -> None:
        self.path, self._lock, self._made = path, lock, made

    @classmethod
    def claim_new(cls, path: str | Path) -> RunDirectory:
        """`path`, made if it is missing, empty, writable and locked. If nothing is written, `close` removes it."""
        path = Path(path)
        check_new(path)
        made: list[Path] = []
        try:
            lock = _make_and_lock(path, made)
        except Locked as error:
            who = f" ({error.owner})" if error.owner else ""
            raise OutputError(
                f"`out={str(path)!r}` belongs to a run that has just started{who}: choose another"
            ) from None
        except OSError as error:
            _remove(made)
            raise OutputError(f"`out={str(path)!r}` cannot be written: {error.strerror}") from error
        claimed = cls(path, lock, made)
        try:
            check_new(path)  # a run may have come and gone between the first check and the lock
        except BaseException:
            claimed.close()
            raise
        return claimed

    @classmethod
    def claim_existing(cls, path: str | Path) -> RunDirectory:
        """`path`, which must hold a checkpoint to resume from, locked."""
        path = resumable_directory(Path(path))
        try:
            return cls(path, DirectoryLock(path), [])
        except Locked as error:
            who = f" ({error.owner})" if error.owner else ""
            raise OutputError(f"{path}: the run is still running{who}; wait for it, or stop it") from None
        except OSError as error:
            raise OutputError(f"{path} cannot be written: {error.strerror}") from error

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Releases the directory; one that was made for the run and is still empty is removed."""
        self._lock.close()
        _remove(self._made)
        self._made = []


@contextlib.contextmanager
def claimed(out: Path | None) -> Iterator[Path | None]:
    """The directory for the files of a measurement or simulation, locked while it is made; None if none is wanted."""
    if out is None:
        yield None
        return
    with RunDirectory.claim_new(out) as directory:
        yield directory.path


def _make_and_lock(path: Path, made: list[Path]) -> DirectoryLock:
    for attempt in range(_ATTEMPTS):
        missing = [place for place in (path, *path.parents) if not place.exists()]
        path.mkdir(parents=True, exist_ok=True)
        made[:] = missing
        try:
            return DirectoryLock(path)
        except FileNotFoundError:  # removed in between
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("not reached")


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
            raise OutputError(f"{path} cannot be made: {error.strerror}; name a place with `out`") from error


def remove_if_empty(path: Path) -> None:
    """Takes back a directory in which nothing came to be, and its parent if nothing else is there."""
    _remove([path, path.parent])


def resumable_directory(path: Path) -> Path:
    if not path.is_dir():
        raise CheckpointError(f"{path}: no such directory")
    if not (path / NAME).exists():
        raise CheckpointError(f"{path} has no {NAME}: the run stopped before its first one, start it again")
    return path
