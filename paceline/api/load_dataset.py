"""`paceline.load_dataset`: a data set by the name that a workload has for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.api.settings import as_optional_path
from paceline.given_workload import texts_of
from paceline.held_objects import holding

if TYPE_CHECKING:
    from paceline.data import Dataset, Progress


def load_dataset(
    data: Any, *, data_dir: str | Path | None = None, downloads: Progress | None = None
) -> Dataset:  # fmt: skip
    """Load a data set from anything that `paceline.train` accepts as `data`; it is downloaded if it is missing.

    >>> dataset = paceline.load_dataset("digits")
    >>> len(dataset.train), len(dataset.test), dataset.shape
    (1437, 360, (1, 8, 8))
    """
    from paceline import user_code
    from paceline.data import load

    with holding() as hold:
        source = texts_of({"data": data}, hold)["data"]
        cache = as_optional_path(data_dir, "data_dir")
        return load(source, cache=cache, progress=downloads, find=user_code.find)
