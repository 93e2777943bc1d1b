"""Asks before code that a file names is run.

A checkpoint, a plan or a record may name `module:function`, and using it imports that module. That happens without a
question if the module lies in the current directory or where the run was made, if the user named it in this call, or
if it is part of Paceline, `torch.optim` or `torch.nn`. Any other module needs `trust=True` (`--trust`).
"""

from __future__ import annotations

import importlib.util
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.errors import InputError
from paceline.held_objects import is_held

KEYS = (
    "network", "data", "loss", "optimizer", "schedule", "metric", "phases", "exchange", "correction",
    "server_optimizer",
)  # fmt: skip
"""Settings of a workload or a strategy that may name code."""
FILE_SOURCES = ("arrays", "csv", "images", "parquet", "text")
"""Data sources whose text after the colon is a file or a folder."""
_PLACE = re.compile(r"([A-Za-z_]\w*(?:\.\w+)*):[A-Za-z_]")
_OURS = ("paceline", "torch.optim", "torch.nn")


@dataclass(frozen=True)
class _Trust:
    everything: bool = False
    modules: frozenset[str] = frozenset()


_NOTHING = _Trust()
_current: ContextVar[_Trust] = ContextVar("trust", default=_NOTHING)


@contextmanager
def trusting(everything: bool, named: Iterable[Any] = ()) -> Iterator[None]:
    """While this lasts, modules that are `named` are the user's choice, or all are."""
    modules = frozenset(module for value in named if (module := module_of(value)) is not None)
    token = _current.set(_Trust(everything, modules))
    try:
        yield
    finally:
        _current.reset(token)


def check_code(settings: Mapping[str, Any], source: str | Path, made_in: str = "") -> None:
    """Raises an error if the settings read from `source` name a module that the user has not agreed to.

    `made_in` is the directory where the run was made, as its record says. A record can say anything, so that only a
    module directly in that directory counts, and none that is installed or belongs to Python.
    """
    trust = _current.get()
    for key in KEYS:
        module = module_of(settings.get(key))
        if key == "data" and module in FILE_SOURCES:
            continue  # `csv:table.csv` names a file, although Python has a module csv
        if module is None or trust.everything or module in trust.modules:
            continue
        if any(module == ours or module.startswith(f"{ours}.") for ours in _OURS):
            continue
        where = _location(module)
        if where is not None and not (_in_current_directory(where) or _lies_directly_in(where, made_in)):
            raise InputError(
                f"{source} would run code from the module {module} ({where}), as its {key} {settings[key]!r:.60}: "
                "give `trust=True` if you trust it"
            )


def module_of(value: Any) -> str | None:
    """The module that a text such as `my_nets:build` names."""
    found = _PLACE.match(value) if isinstance(value, str) and not is_held(value) else None
    return found[1].removesuffix(".py") if found else None


def _location(module: str) -> str | None:
    """Where importing would find it; None if there is no such module, as for `digits:50`. Nothing is imported."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        spec = importlib.util.find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        return "unknown"
    if spec is None:
        return None
    folders = list(spec.submodule_search_locations or ())
    return spec.origin or (folders[0] if folders else "unknown")


def _in_current_directory(where: str) -> bool:
    return _is_own(Path(where)) and Path(where).is_relative_to(Path.cwd())


def _lies_directly_in(where: str, folder: str) -> bool:
    """Whether it is a module or a package of this folder."""
    path = Path(where)
    home = path.parent.parent if path.name == "__init__.py" else path.parent
    return bool(folder) and _is_own(path) and home == Path(folder)


def _is_own(path: Path) -> bool:
    """Whether it is a file of the user's: of a built-in module it is a word."""
    installed = {"site-packages", "dist-packages"} & set(path.parts)
    pythons = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
    return path.is_absolute() and not installed and not any(path.is_relative_to(folder) for folder in pythons)
