"""Finds what a user wrote: `module:function`, in the current directory too.

Importing a script that trains as it is imported would train twice, once for nothing; a backward pass
during the import is therefore stopped, with a line that says what to guard.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from paceline.errors import PacelineError, WorkloadError, a_type, reason
from paceline.held_objects import find_held, is_held

_importing: list[str] = []


class _TrainsOnImport(BaseException):
    """Not an Exception: a script's own `except Exception` must not swallow it."""


def importing() -> str | None:
    """The user's module that is being imported right now."""
    return _importing[-1] if _importing else None


@contextmanager
def _without_training(module: str) -> Iterator[None]:
    import torch

    def refuse(*_: Any, **__: Any) -> None:
        raise _TrainsOnImport

    backward = torch.autograd.backward
    _importing.append(module)
    torch.autograd.backward = refuse
    try:
        yield
    finally:
        torch.autograd.backward = backward
        _importing.pop()


def find(place: str) -> Any:
    """The object that `module:name` names, or the one that was given in Python as `object:NAME`."""
    if is_held(place):
        return find_held(place)
    module_name, _, name = place.partition(":")
    if not module_name or not name:
        raise WorkloadError(f"{place!r} should be module:function")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    guard = 'put what only the script should do under: if __name__ == "__main__":'
    try:
        with _without_training(module_name):
            value: Any = importlib.import_module(module_name.removesuffix(".py"))
    except _TrainsOnImport:
        raise WorkloadError(f"importing {module_name} starts training; {guard}") from None
    except SystemExit as error:
        raise WorkloadError(f"importing {module_name} ends the program (exit {error.code}); {guard}") from None
    except ModuleNotFoundError as error:
        if error.name == module_name.removesuffix(".py"):
            raise WorkloadError(f"no module {module_name!r} here ({here}) or installed") from None
        raise WorkloadError(f"importing {module_name} failed: no module {error.name!r}") from error
    except PacelineError:
        raise
    except Exception as error:
        raise WorkloadError(f"importing {module_name} failed: {reason(error)}") from error
    for part in name.split("."):
        if not hasattr(value, part):
            raise WorkloadError(f"module {module_name} has no {name!r}")
        value = getattr(value, part)
    return value


def call(place: str, *arguments: Any) -> Any:
    """What the function at `module:function` returns."""
    function = find(place)
    if not callable(function):
        raise WorkloadError(f"{place} is {a_type(function)}, not a function")
    try:
        return function(*arguments)
    except PacelineError:
        raise
    except SystemExit as error:
        raise WorkloadError(f"{place} ends the program (exit {error.code}); it should return instead") from None
    except Exception as error:
        raise WorkloadError(f"{place} failed: {reason(error)}") from error
