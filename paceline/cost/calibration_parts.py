"""Keeps the parts of a calibration in a directory, so that one that was interrupted continues where it stopped.

What was measured on one machine can also be fitted on another: if all parts are there, nothing is measured.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import TypeVar

import msgspec

from paceline.cost.calibration import CompiledRatio, TrialSet
from paceline.errors import InputError

Part = TypeVar("Part")


@dataclass(frozen=True)
class DevicePart:
    """The device, and when and with what it was measured."""

    device: str
    name: str
    cores: int
    memory_bytes: int
    flops: float
    bytes: float
    date: str
    torch: str
    python: str


@dataclass(frozen=True)
class TrialPart:
    trials: TrialSet
    spread: float
    """Of the probes: (p90 - p10) / median of the noisiest."""


@dataclass(frozen=True)
class CompiledPart:
    ratios: dict[str, CompiledRatio] = field(default_factory=dict)
    missing: str = ""
    """Why there are none or fewer."""


class CalibrationParts:
    """`minutes`: no further part is begun after this time."""

    def __init__(self, folder: Path | None = None, minutes: float | None = None) -> None:
        self.folder, self.minutes = folder, minutes
        self._begun_s = perf_counter()
        self.took_s: dict[str, float] = {}
        """Seconds of each part that was measured now."""

    def get(self, name: str, kind: type[Part]) -> Part | None:
        path = self._path(name)
        if path is None or not path.is_file():
            return None
        try:
            return msgspec.json.decode(path.read_bytes(), type=kind)
        except msgspec.MsgspecError as error:
            raise InputError(f"{path} is no part of a calibration ({error}): remove it to measure it again") from None

    def measured_on(self) -> str:
        """`cpu` or `cuda`, if a part is there."""
        known = self.get("device", DevicePart)
        return known.device if known is not None else ""

    def said(self) -> str:
        """How long measuring took now, by the first word of the parts' names."""
        words: dict[str, float] = {}
        for name, seconds in self.took_s.items():
            word = name.partition(" ")[0]
            words[word] = words.get(word, 0.0) + seconds
        return ", ".join(f"{word} {seconds:.0f} s" for word, seconds in words.items())

    def make(self, name: str, kind: type[Part], measure: Callable[[], Part]) -> Part:
        """The part as it was kept, or as measured now."""
        kept = self.get(name, kind)
        if kept is not None:
            return kept
        begun_s = perf_counter()
        if self.minutes is not None and begun_s - self._begun_s > 60 * self.minutes:
            raise InputError(
                f"the calibration is not complete after {self.minutes:g} minutes: run the same command again, it "
                f"continues with {name}"
            )
        found = measure()
        self.took_s[name] = perf_counter() - begun_s
        path = self._path(name)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_suffix(".partial")
            partial.write_bytes(msgspec.json.encode(found))
            partial.replace(path)
        return found

    def _path(self, name: str) -> Path | None:
        return self.folder / f"{re.sub(r'[^A-Za-z0-9_.]+', '-', name)}.json" if self.folder is not None else None
