"""A folder elsewhere, copied into the cache and kept up to date: only new and changed files travel."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from paceline.data.cache import Progress, disk_error, ensure_folder, locked, read_json, write_json
from paceline.errors import DataError

_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
_VERSION_KEYS = (
    *("ETag", "etag", "md5Hash", "Content-MD5", "sha256", "LastModified", "Last-Modified"),
    *("last_modified", "mtime", "updated", "modified", "created"),
)
_AT_ONCE = 8
_SAVE_EVERY = 256

Versions = dict[str, list[Any]]
"""Of each file: its size, and what the place says to tell its versions apart."""


def is_remote(path: str) -> bool:
    return _ADDRESS.match(path) is not None


def local_copy(address: str, cache: Path) -> Path | None:
    """The copy that an earlier synchronisation finished, if there is one."""
    copy = _Copy.of(address, cache)
    return copy.files if copy.versions() is not None and copy.finished() else None


def synchronise(address: str, cache: Path, progress: Progress | None = None) -> Path:
    """Makes the local copy like the remote folder and returns it."""
    copy = _Copy.of(address, cache)
    with locked(copy.folder):
        system, root = _opened(address)
        remote = _listed(address, system, root)
        have = {
            name: version
            for name, version in (copy.versions() or {}).items()
            if (copy.files / name).is_file() and (copy.files / name).stat().st_size == version[0]
        }
        wanted = {name: version for name, version in remote.items() if have.get(name) != version}
        copy.save({name: version for name, version in have.items() if name not in wanted}, finished=False)
        _remove_others(copy.files, remote)
        _bring(address, system, root, wanted, copy, progress)
        copy.save(remote, finished=True)
    return copy.files


@dataclass(frozen=True)
class _Copy:
    """A local copy: `files`, and beside them a record of which version of each file is there."""

    folder: Path

    @classmethod
    def of(cls, address: str, cache: Path) -> _Copy:
        return cls(cache / "folders" / hashlib.sha256(address.rstrip("/").encode()).hexdigest()[:24])

    @property
    def files(self) -> Path:
        return self.folder / "files"

    def _record(self) -> Mapping[str, Any]:
        known = read_json(self.folder / "versions.json")
        return known if isinstance(known, dict) else {}

    def versions(self) -> Versions | None:
        return self._record().get("versions")

    def finished(self) -> bool:
        return bool(self._record().get("finished"))

    def save(self, versions: Versions, *, finished: bool) -> None:
        try:
            write_json(self.folder / "versions.json", {"versions": versions, "finished": finished})
        except OSError as error:
            raise disk_error(self.folder, error) from error


def _opened(address: str) -> tuple[Any, str]:
    import fsspec

    try:
        system, root = fsspec.core.url_to_fs(address)
    except ImportError as error:
        raise DataError(f"data at {address}: {error}") from error
    except Exception as error:
        raise DataError(f"data at {address}: {_line(error)}; check the address") from error
    return system, str(root).rstrip("/")


def _listed(address: str, system: Any, root: str) -> Versions:
    try:
        found = system.find(root, detail=True)
        versions = {}
        for full, details in found.items():
            name = full.removeprefix(root).lstrip("/")
            parts = PurePosixPath(name).parts
            if name and ".." not in parts and "?" not in name:
                versions[name] = _version(system, full, details)
    except Exception as error:
        raise DataError(f"data at {address} cannot be listed: {_line(error)}; check the address") from error
    if not versions:
        raise DataError(f"data at {address}: there are no files; check the address")
    return versions


def _version(system: Any, full: str, details: Mapping[str, Any]) -> list[Any]:
    tag = _tag(details)
    if tag is None or details.get("size") is None:
        # Listings over HTTP say nothing of their files; each has to be asked.
        details = system.info(full)
        tag = _tag(details)
    size = details.get("size")
    if size is None:
        raise ValueError(f"the size of {full} is not known")
    return [int(size), tag]


def _tag(details: Mapping[str, Any]) -> str | None:
    return next((str(details[key]) for key in _VERSION_KEYS if details.get(key) is not None), None)


def _remove_others(files: Path, remote: Versions) -> None:
    if not files.is_dir():
        return
    for path in sorted(files.rglob("*"), reverse=True):
        if path.is_dir():
            if not any(path.iterdir()):
                path.rmdir()
        elif path.relative_to(files).as_posix() not in remote:
            path.unlink()


def _bring(address: str, system: Any, root: str, wanted: Versions, copy: _Copy, progress: Progress | None) -> None:
    have = copy.versions() or {}
    total = sum(int(version[0]) for version in wanted.values())
    done = 0
    pool = ThreadPoolExecutor(_AT_ONCE)
    tasks = {pool.submit(_copy_one, system, f"{root}/{name}", copy.files / name): name for name in wanted}
    try:
        for number, task in enumerate(as_completed(tasks), start=1):
            name = tasks[task]
            if error := task.exception():
                raise DataError(f"data at {address}: {name} cannot be copied: {_line(error)}; try again") from error
            have[name] = wanted[name]
            done += int(wanted[name][0])
            if number % _SAVE_EVERY == 0:
                copy.save(have, finished=False)
            if progress is not None:
                progress(address, done, total)
    finally:
        # What came before a failure or an interruption need not travel again.
        pool.shutdown(cancel_futures=True)
        copy.save(have, finished=False)


def _copy_one(system: Any, remote: str, target: Path) -> None:
    ensure_folder(target.parent)
    temporary = target.with_name(target.name + ".tmp")
    try:
        system.get_file(remote, str(temporary))
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
