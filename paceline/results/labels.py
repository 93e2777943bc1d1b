"""Labels of runs, made of as few settings as distinguish them; the same on the terminal, in files and on pages."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from paceline.formatting import natural

Settings = Mapping[str, str]
Item = TypeVar("Item")
Key = TypeVar("Key")

FIRST = ("network", "strategy", "correction", "workers", "groups", "driver", "batch", "data", "optimizer", "lr")
"""Settings that distinguish runs before any other."""
BARE = ("network", "data", "strategy", "correction", "driver", "optimizer", "processor", "kind")
"""Settings whose value needs no name beside it."""
DRIVERS = {"virtual": "simulated", "local": "processes", "ray": "Ray cluster"}
REPETITION = "seed"
ID_LENGTH = 10


def setting_text(value: Any) -> str:
    if value is None:
        return "default"
    return f"{value:g}" if isinstance(value, float) else str(value)


def setting_id(settings: Mapping[str, Any]) -> str:
    """A hash that repetitions of a setting share."""
    text = json.dumps(settings, sort_keys=True, separators=(",", ":"))
    digits = hashlib.sha256(text.encode()).hexdigest()
    # Spreadsheets would read digits with at most one e as a number.
    starts = (digits[at : at + ID_LENGTH] for at in range(len(digits) - ID_LENGTH))
    return next((start for start in starts if re.search("[a-df]", start)), digits)


def differing(given: Sequence[Settings]) -> list[str]:
    keys = list(dict.fromkeys([*FIRST, *(key for settings in given for key in settings)]))
    return [key for key in keys if len({settings.get(key) for settings in given}) > 1]


def telling_keys(given: Sequence[Settings], beside: Collection[str] = (REPETITION,)) -> list[str]:
    """As few settings as distinguish all runs; each separates runs that the previous ones do not."""
    telling: list[str] = []
    for key in differing(given):
        if key not in beside and _distinct(given, [*telling, key]) > _distinct(given, telling):
            telling.append(key)
    return telling


def _distinct(given: Sequence[Settings], keys: Sequence[str]) -> int:
    return len({values(settings, keys) for settings in given})


def varied_keys(given: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """All keys in which settings differ, in the given order.

    A key that has one value or none, such as a driver, is left out if the others suffice.
    """
    texts = [{key: json.dumps(value) for key, value in settings.items()} for settings in given]
    found = {key: {settings.get(key) for settings in texts} for settings in texts for key in settings}
    varied = [key for key, texts_of in found.items() if len(texts_of) > 1]
    for key in [key for key in varied if len(found[key] - {None, "null"}) == 1]:
        without = [other for other in varied if other != key]
        if _distinct(texts, without) == _distinct(texts, varied):
            varied = without
    return tuple(varied)


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Items by key, in order of first appearance."""
    found: dict[Key, list[Item]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


def values(settings: Settings, keys: Iterable[str]) -> tuple[str | None, ...]:
    return tuple(settings.get(key) for key in keys)


def place_in_order(settings: Settings, keys: Iterable[str]) -> list[tuple[int, float, str]]:
    """A key to sort by: missing values before numbers, numbers by size, text last."""
    return [(0, 0.0, "") if value is None else natural(value) for value in values(settings, keys)]


def label_by(settings: Settings, keys: Iterable[str]) -> str:
    """For example `downpour · 4 workers · lr 0.1`; empty if no key has a value."""
    words = []
    for key in keys:
        value = settings.get(key)
        if key == "strategy" and value in (None, "none"):
            value = "one process"
        if value is None or (key == "correction" and value == "none"):
            continue
        name = key.removeprefix("options.").replace("_", " ")
        if key in ("workers", "threads"):
            words.append(f"{value} {key.removesuffix('s')}{'s' * (value != '1')}")
        elif key == "measure":
            words.append("measured" if value == "True" else "not measured")
        else:
            words.append(DRIVERS.get(value, value) if key in BARE else f"{name} {value}")
    return " · ".join(words)
