"""Checks for hardware records, and lookup by name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from paceline.errors import InputError, nearest

Found = TypeVar("Found")

LARGEST = 10**30
"""Larger values are mistakes, and close to the limit of floating point."""
DATE = re.compile(r"\d{4}(-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?)?")


def require_text(where: str, value: object, *, may_be_empty: bool = False) -> None:
    if not isinstance(value, str) or (not may_be_empty and not value.strip()):
        raise InputError(f"{where}={value!r:.60} should be text")


def require_whole(where: str, value: object, least: int = 1) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < LARGEST:
        raise InputError(f"{where}={value!r:.60} should be a whole number of at least {least}")


def require_number(where: str, value: object, *, zero: bool = False) -> None:
    """A finite number above zero; with `zero`, zero is allowed."""
    wanted = "of at least 0" if zero else "above 0"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{where}={value!r:.60} should be a number {wanted}")
    if not 0 <= value < LARGEST or (value == 0 and not zero):
        raise InputError(f"{where}={str(value)[:20]} should be a finite number {wanted}")


def require_date(where: str, value: str) -> None:
    """The date of a price: a year, a month or a day; may be empty."""
    require_text(where, value, may_be_empty=True)
    if value and not DATE.fullmatch(value):
        raise InputError(f"{where}={value!r:.60} should be YYYY, YYYY-MM or YYYY-MM-DD")


def known_keys(where: str, table: Mapping[str, Any], keys: Iterable[str]) -> None:
    known = tuple(keys)
    for key in table:
        if key not in known:
            raise InputError(f"{where} has no key {key!r}: {nearest(key, known)}")


def a_table(where: str, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{where} should be a table, not {value!r:.60}")
    return value


def plain(name: str) -> str:
    """A name without case, spaces and dashes: `gtx-1080` is `GTX 1080`."""
    return re.sub(r"[^a-z0-9.+/]", "", name.lower())


def find_named(what: str, name: object, known: Mapping[str, Found], where: str = "") -> Found:
    """The entry of this name; `known` has plain names as keys."""
    before = f"{where}: " if where else ""
    if not isinstance(name, str):
        raise InputError(f"{before}{name!r:.60} should be the name of a {what}")
    if plain(name) not in known:
        close = difflib.get_close_matches(plain(name), known, n=3, cutoff=0.5)
        names = dict.fromkeys(str(getattr(known[one], "name", one)) for one in close)
        hint = f"did you mean {' or '.join(names)}?" if names else f"see paceline catalogue {what}s"
        raise InputError(f"{before}no {what} {name!r}: {hint}")
    return known[plain(name)]
