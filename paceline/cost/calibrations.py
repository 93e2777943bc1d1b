"""Where calibrations are stored: those of this machine in the cache folder, and a few bundled with Paceline."""

from __future__ import annotations

import functools
import re
from importlib.resources import files
from pathlib import Path

from paceline import record
from paceline.cost.calibration import Calibration
from paceline.data.cache import calibration_folder
from paceline.errors import InputError
from paceline.step.placement import choose_device, device_name


def calibration_path(name: str) -> Path:
    """The file for a calibration of the named device made on this machine."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return calibration_folder() / f"{plain}.json"


def load_calibration(path: Path) -> Calibration:
    """Cached while the file does not change, together with the curves fitted to it."""
    try:
        changed = path.stat().st_mtime_ns
    except OSError:
        changed = 0
    return _loaded(path.absolute(), changed)


@functools.lru_cache(maxsize=64)
def _loaded(path: Path, changed: int) -> Calibration:
    return record.load_as(path, Calibration, InputError)


def local_calibration(device: str = "auto") -> Calibration:
    name = device_name(choose_device(device)[0])
    path = calibration_path(name)
    if not path.exists():
        raise InputError(f"{name} has no calibration yet: run paceline calibrate, or name another `device`")
    return load_calibration(path)


def local_calibrations() -> list[Calibration]:
    """All calibrations in the cache folder, made on this machine or copied there; the latest first."""
    found = calibration_folder().glob("*.json")
    return [load_calibration(path) for path in sorted(found, key=lambda path: -path.stat().st_mtime_ns)]


@functools.cache
def bundled_calibrations() -> dict[str, Calibration]:
    """Calibrations bundled with Paceline, by the catalogue name of the device."""
    folder = files("paceline") / "catalogue" / "calibrations"
    found = {}
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name) if folder.is_dir() else ():
        if entry.name.endswith(".json"):
            made = load_calibration(Path(str(entry)))
            found[made.conditions.get("catalogue name", made.device_name)] = made
    return found
