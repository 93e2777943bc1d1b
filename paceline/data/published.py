"""Published data sets: how their files are found, in the cache or in one place after the other."""

from __future__ import annotations

import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.data.cache import Progress, is_verified, locked
from paceline.data.download import Unavailable
from paceline.data.places import Folder, Place, PublishedFile
from paceline.errors import DataError


@dataclass(frozen=True)
class Published:
    """A data set that others publish, and in which order its places are tried."""

    name: str
    description: str
    files: tuple[PublishedFile, ...]
    places: tuple[Place, ...]
    samples: tuple[int, int]
    shape: tuple[int, ...]
    classes: tuple[str, ...]

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


def obtain(
    published: Published, cache: Path, *, given: Path | None = None, progress: Progress | None = None
) -> tuple[Path, ...]:
    """Verified paths of the files, in their order: in the given folder if there is one, else in the cache,
    which is filled from the first place that can."""
    if given is not None:
        return _in_given_folder(published, given, cache)
    found = present(published, cache)
    if found is not None:
        return found
    folder = cache / published.name
    with locked(folder):
        _fill(published, folder, cache, progress)
        return tuple(folder / file.name for file in published.files)


def present(published: Published, cache: Path) -> tuple[Path, ...] | None:
    """The files where they are in the cache now, if all are there and sound."""
    folder = cache / published.name
    if _missing(published, folder, cache):
        return None
    return tuple(folder / file.name for file in published.files)


def _missing(published: Published, folder: Path, cache: Path) -> Sequence[PublishedFile]:
    return [
        file for file in published.files if not is_verified(folder / file.name, file.sha256, file.size_bytes, cache)
    ]


def _fill(published: Published, folder: Path, cache: Path, progress: Progress | None) -> None:
    corrupt = [file.name for file in _missing(published, folder, cache) if (folder / file.name).exists()]
    tried = []
    for place in (Folder(folder), *published.places):
        missing = _missing(published, folder, cache)
        if not missing:
            return
        try:
            place.bring(missing, folder, progress)
        except (Unavailable, OSError, tarfile.TarError) as reason:
            tried.append(f"{place.name} ({reason})")
    if _missing(published, folder, cache):
        # One line, also when a reason came from a library with several.
        places = " ".join("; ".join(tried).split())
        state = f"{folder / corrupt[0]} is corrupt and" if corrupt else "the files"
        raise DataError(
            f"data {published.name!r}: {state} could not be fetched, tried {places}; with internet access, run "
            f"'paceline data fetch {published.name}', or put {_names(published)} into {folder}"
        )


def _in_given_folder(published: Published, given: Path, cache: Path) -> tuple[Path, ...]:
    if not given.is_dir():
        raise DataError(f"data {published.name!r}: path {given} is not a folder; it must hold {_names(published)}")
    if not _missing(published, given, cache):
        return tuple(given / file.name for file in published.files)
    folder = cache / f"{published.name}-unpacked"
    with locked(folder):
        missing = _missing(published, folder, cache)
        if missing:
            try:
                Folder(given).bring(missing, folder, None)
            except Unavailable as reason:
                raise DataError(
                    f"data {published.name!r}: path {given}: {reason}; it must hold {_names(published)}"
                ) from reason
        return tuple(folder / file.name for file in published.files)


def _names(published: Published) -> str:
    return ", ".join(file.name for file in published.files)
