"""Data: a name in, a `Dataset` out.

Importing this package imports neither PyTorch nor anything slow: the processes that decode images do it too.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paceline.data.cache import Progress
    from paceline.data.dataset import Arrays, Dataset, Files, Reader
    from paceline.data.entries import Entry

__all__ = ["Arrays", "Dataset", "Entry", "Files", "Progress", "Reader", "available_datasets", "fetch", "load", "path"]

_HOMES = {
    "Arrays": "paceline.data.dataset",
    "Dataset": "paceline.data.dataset",
    "Files": "paceline.data.dataset",
    "Reader": "paceline.data.dataset",
    "Entry": "paceline.data.entries",
    "Progress": "paceline.data.cache",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)


def load(
    source: str,
    *,
    cache: Path | None = None,
    progress: Progress | None = None,
    find: Callable[[str], Any] | None = None,
) -> Dataset:
    """The data set that `source` names, fetched if need be; docs/reference/data.md has the grammar.

    `find` turns the user's own `module:function` into the function; without it, it is imported.
    """
    from paceline.data import own
    from paceline.data.cache import cache_folder
    from paceline.data.entries import MODULES, dataset_module
    from paceline.data.source import parse
    from paceline.errors import DataError

    check_source(source)
    asked = parse(source)
    if asked.name in MODULES:
        dataset: Dataset = dataset_module(asked.name).load(asked, cache_folder(cache), progress)
    else:
        dataset = own.load(asked, find, tuple(MODULES))
    if asked.count is None:
        return dataset
    if asked.count > len(dataset.train):
        raise DataError(
            f"data {source!r}: the count {asked.count} is more than the {len(dataset.train)} training samples"
        )
    return dataset.first(asked.count)


def check_source(source: str) -> None:
    """Refuses a name that is neither a known source nor the user's own."""
    from paceline.data.entries import MODULES
    from paceline.data.source import parse
    from paceline.errors import DataError, nearest

    asked = parse(source)
    if asked.name in MODULES or asked.argument:
        return
    table = asked.name.rpartition(".")[2]
    hint = f"did you mean {table}:{source}?" if table in ("csv", "parquet") else nearest(asked.name, MODULES)
    raise DataError(f"no data source {source!r}: {hint}")


def available_datasets(*, cache: Path | None = None) -> list[Entry]:
    """What can be loaded by name, and where it is now."""
    from paceline.data.cache import cache_folder
    from paceline.data.entries import entries

    return entries(cache_folder(cache))


def fetch(name: str, *, cache: Path | None = None, progress: Progress | None = None) -> Path:
    """Makes a data set available without a network from now on; the folder or file where it is."""
    from paceline.data.cache import cache_folder
    from paceline.data.published import obtain
    from paceline.data.remote_folder import is_remote, synchronise
    from paceline.data.source import parse
    from paceline.data.well_known import WELL_KNOWN

    folder = cache_folder(cache)
    asked = parse(name)
    if asked.name in WELL_KNOWN:
        return obtain(WELL_KNOWN[asked.name], folder, progress=progress)[0].parent
    if asked.name == "images" and asked.argument and is_remote(asked.argument):
        return synchronise(asked.argument, folder, progress)
    return _local(name, folder)


def is_missing(name: str, cache: Path | None = None) -> bool:
    """Whether a data set would have to be fetched before it is loaded."""
    from paceline.data.remote_folder import is_remote
    from paceline.data.source import parse
    from paceline.data.well_known import WELL_KNOWN

    asked = parse(name)
    remote = asked.name == "images" and asked.argument is not None and is_remote(asked.argument)
    return (remote or asked.name in WELL_KNOWN) and path(name, cache=cache) is None


def path(name: str, *, cache: Path | None = None) -> Path | None:
    """Where a data set is now, or None when it would have to be fetched."""
    from paceline.data.cache import cache_folder
    from paceline.data.entries import dataset_path
    from paceline.data.remote_folder import is_remote, local_copy
    from paceline.data.source import parse
    from paceline.data.well_known import WELL_KNOWN

    folder = cache_folder(cache)
    asked = parse(name)
    if asked.name == "images" and asked.argument and is_remote(asked.argument):
        return local_copy(asked.argument, folder)
    if asked.name in WELL_KNOWN:
        return dataset_path(asked.name, folder)
    return _local(name, folder)


def _local(name: str, cache: Path) -> Path:
    """The file of a bundled data set, or the file or folder that a source of the user's own names."""
    from paceline.data.entries import MODULES, dataset_path
    from paceline.data.source import parse
    from paceline.errors import DataError, nearest

    asked = parse(name)
    if asked.name not in MODULES:
        raise DataError(f"no data set {name!r}: {nearest(asked.name, MODULES)}")
    bundled = None if asked.argument else dataset_path(asked.name, cache)
    if bundled is not None:
        return bundled
    if not asked.argument or not Path(asked.argument).expanduser().exists():
        raise DataError(f"data {name!r} is not a file, a folder or a published data set; nothing can be fetched")
    return Path(asked.argument).expanduser()
