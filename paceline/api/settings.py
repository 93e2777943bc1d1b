"""Keyword arguments of a public function, sorted by what they belong to."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from paceline.errors import InputError, WorkloadError, nearest
from paceline.workload import Workload

WORKLOAD_KEYS = frozenset(field.name for field in dataclasses.fields(Workload))


def split(
    settings: Mapping[str, Any], function: Callable[..., Any], others: Collection[str] = ()
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings of the workload, and those that are among `others`; any other name is refused.

    `function` is the one that was called: its arguments are known names, too.
    """
    own: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    for key, value in settings.items():
        if key in WORKLOAD_KEYS or key.startswith("options."):
            if key == "network":
                raise WorkloadError("network is the first argument: pass it there")
            own[key] = value
        elif key in others:
            rest[key] = value
        else:
            known = {*WORKLOAD_KEYS, *others, *inspect.signature(function).parameters} - {"network", "settings"}
            raise InputError(f"no setting {key!r}: {nearest(key, known)}")
    return own, rest


def as_path(value: Any, name: str) -> Path:
    """A path that was given as text or as a path."""
    if isinstance(value, str | Path) and str(value):
        return Path(value).expanduser()
    raise InputError(f"{name}={value!r:.60} should be a path")


def as_optional_path(value: Any, name: str) -> Path | None:
    return None if value is None else as_path(value, name)


def check_whole(value: Any, name: str, least: int) -> None:
    """Refuses anything but a whole number of at least `least`; None stands for one that was not given."""
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise InputError(f"{name}={value!r:.60} should be a whole number")
    if value is not None and value < least:
        raise InputError(f"{name}={value} should be at least {least}")


def check_number(value: Any, name: str, least: float | None = None) -> None:
    if value is not None and (not isinstance(value, int | float) or isinstance(value, bool)):
        raise InputError(f"{name}={value!r:.60} should be a number")
    if value is not None and least is not None and not value >= least:
        raise InputError(f"{name}={value:g} should be a number of at least {least:g}")


def check_device(device: Any) -> None:
    """Refuses what cannot name a device of this machine."""
    if not isinstance(device, str) or not re.fullmatch(r"auto|cpu|cuda(:[0-9]+)?", device):
        raise InputError(f"device={device!r:.60} is not one of auto, cpu, cuda, cuda:N")
