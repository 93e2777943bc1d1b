"""Data from the user's own `module:function`: a `Dataset`, or (x_train, y_train, x_test, y_test)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paceline.data.arrays import dataset_of
from paceline.data.dataset import Dataset
from paceline.data.source import Source, without_count
from paceline.errors import DataError, PacelineError, nearest

Find = Callable[[str], Any]
"""Turns `module:function` into the function."""


def load(source: Source, find: Find | None, known: tuple[str, ...]) -> Dataset:
    source.allow()
    name = without_count(source)
    make = find(name) if find is not None else _imported(source, known)
    result = _called(name, make) if callable(make) else make
    if isinstance(result, Dataset):
        return result
    if isinstance(result, (tuple, list)) and len(result) == 4:
        return dataset_of(name, *result)
    raise DataError(
        f"data {name!r} gave a {type(result).__name__}; it must return a Dataset or (x_train, y_train, x_test, y_test)"
    )


def _called(name: str, make: Callable[[], Any]) -> Any:
    try:
        return make()
    except PacelineError:
        raise
    except Exception as error:
        raise DataError(f"data {name!r} failed: {type(error).__name__}: {error}") from error


def _imported(source: Source, known: tuple[str, ...]) -> Any:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(source.name)
    except ModuleNotFoundError as error:
        if error.name is not None and source.name.split(".")[0] != error.name.split(".")[0]:
            raise
        raise DataError(
            f"data {source.text!r}: no data source and no module {source.name!r}; {nearest(source.name, known)}"
        ) from error
    for attribute in (source.argument or "").split("."):
        if not hasattr(found, attribute):
            raise DataError(f"data {source.text!r}: {source.name} has no {attribute!r}")
        found = getattr(found, attribute)
    return found
