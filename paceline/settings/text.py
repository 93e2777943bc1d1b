"""Settings as users write them: TOML files and KEY=VALUE words, and values as error messages show them."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from paceline.errors import InputError


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
    """Text as the TOML value it looks like, or as text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


def shown(value: Any) -> str:
    """A value in an error message: on one line and not too long."""
    try:
        return f"{value!r:.60}"
    except ValueError:  # a whole number of thousands of digits
        return (
            f"a number of {value.bit_length() * 3 // 10:,} digits" if isinstance(value, int) else type(value).__name__
        )
