"""Settings as text: TOML files, command-line values, times, and values in error messages."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from paceline.errors import InputError

MAX_TIME_S = 100 * 365 * 86400.0
_UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]+)\s*")


def read_toml(path: str | Path, error: type[InputError] = InputError) -> dict[str, Any]:
    """The table in a file; every error names the file."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except FileNotFoundError:
        raise error(f"{path}: no such file") from None
    except OSError as raised:
        raise error(f"{path}: cannot be read: {raised.strerror}") from raised
    except RecursionError:
        raise error(f"{path}: not valid TOML: tables or lists are nested too deeply") from None
    except ValueError as raised:  # not TOML, not text, or a number of thousands of digits
        raise error(f"{path}: not valid TOML: {raised}") from raised


def read_any(text: str) -> Any:
    """Text as a TOML value if it is one, else as text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


def read_time(name: str, text: str) -> float:
    """Seconds of `24h`, `90min`, `1d12h`; errors refer to the argument `name`."""
    found = _PART.findall(text.strip().lower())
    whole = "".join(f"{number}{unit}" for number, unit in found)
    if not found or whole != re.sub(r"\s+", "", text.lower()) or any(unit not in _UNITS for _, unit in found):
        raise InputError(f"`{name}={text!r:.60}` should be a time with a unit, e.g. 90min, 24h, 2d or 1d12h")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in found)
    if not 0 < seconds <= MAX_TIME_S:
        raise InputError(f"`{name}={text!r:.60}` should be above 0, and less than a hundred years")
    return seconds


def shown(value: Any) -> str:
    """A value in an error message: on one line and not too long."""
    try:
        return f"{value!r:.60}"
    except ValueError:  # a whole number of thousands of digits
        digits = value.bit_length() * 3 // 10 if isinstance(value, int) else 0
        return f"a number of {digits:,} digits" if digits else type(value).__name__
