"""The folder that keeps what was fetched: where it is, how files enter it whole, and which were verified."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from paceline.errors import DataError

Progress = Callable[[str, int, int | None], None]
"""Called with what is being fetched, the bytes so far, and all bytes where that is known."""


def cache_folder(given: Path | None = None) -> Path:
    """The given folder, or `paceline` in the platform's folder for caches."""
    if given is not None:
        return Path(given).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "paceline"
    configured = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG rule: a relative path counts as not set.
    base = Path(configured) if os.path.isabs(configured) else Path.home() / ".cache"  # noqa: PTH117
    return base / "paceline"


def calibration_folder() -> Path:
    """Where calibrations that were made on this machine, or copied to it, are kept."""
    return cache_folder() / "calibrations"


def ensure_folder(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"cannot create {folder}: {error.strerror}; choose another folder with `data_dir`") from error
    return folder


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Only one process at a time; the system releases the lock of a process that dies."""
    path = ensure_folder(folder) / ".lock"
    try:
        handle = path.open("a")
    except OSError as error:
        raise DataError(f"cannot write in {folder}: {error.strerror}; choose another folder with `data_dir`") from error
    with handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def replacing_file(target: Path) -> Iterator[Path]:
    """A path to write to that becomes `target` when all went well. The caller holds the folder's lock."""
    temporary = target.with_name(target.name + ".tmp")
    try:
        yield temporary
        temporary.replace(target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise disk_error(target, error) from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def disk_error(target: Path, error: OSError) -> DataError:
    return DataError(f"cannot write {target}: {error.strerror or error}; free some space or choose another `data_dir`")


def fingerprint(path: Path) -> list[int]:
    """Changes whenever the file does; with the change time, because the modification time can be set."""
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def sha256_of(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def is_verified(path: Path, sha256: str, size_bytes: int, cache: Path) -> bool:
    """Whether the file has this SHA-256. A good result is remembered until the file changes."""
    try:
        seen = fingerprint(path)
    except OSError:
        return False
    if seen[0] != size_bytes:
        return False
    stamp = cache / ".verified" / (hashlib.sha256(os.fsencode(path.absolute())).hexdigest()[:32] + ".json")
    expected = {"sha256": sha256, "fingerprint": seen}
    if read_json(stamp) == expected:
        return True
    if sha256_of(path) != sha256:
        return False
    # A cache that cannot be written costs a second hashing, nothing else.
    with contextlib.suppress(OSError):
        stamp.parent.mkdir(parents=True, exist_ok=True)
        write_json(stamp, expected)
    return True


def read_json(path: Path) -> object:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def write_json(path: Path, value: object) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.write_text(json.dumps(value), encoding="utf-8")
    temporary.replace(path)
