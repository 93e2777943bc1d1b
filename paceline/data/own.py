"""Data from the user's own `module:name`: a function without arguments that returns data, or the data themselves."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paceline.data.dataset import Dataset
from paceline.data.given import dataset_from
from paceline.data.source import Source, without_count
from paceline.errors import DataError, PacelineError, nearest, reason

Find = Callable[[str], Any]
"""Turns `module:function` into the function."""


def load(source: Source, find: Find | None, known: tuple[str, ...]) -> Dataset:
    source.allow()
    name = without_count(source)
    make = find(name) if find is not None else _imported(source, known)
    return dataset_from(name, _called(name, make) if _is_maker(make) else make)


def _is_maker(found: Any) -> bool:
    """Whether it makes data when it is called; a data set may be callable for another reason."""
    return callable(found) and (isinstance(found, type) or not hasattr(found, "__getitem__"))


def _called(name: str, make: Callable[[], Any]) -> Any:
    try:
        return make()
    except PacelineError:
        raise
    except SystemExit as error:
        raise DataError(f"data {name!r} ends the program (exit {error.code}); it should return data") from None
    except Exception as error:
        raise DataError(f"data {name!r} failed: {reason(error)}") from error


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
