"""The grammar of a data source: `NAME[:ARGUMENT][?KEY=VALUE&...][:COUNT]`, as `images:photos?size=96:500`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from paceline.errors import DataError, nearest

_NEED_ARGUMENT = ("images", "arrays", "synthetic", "tokens", "adding", "logic", "csv", "parquet", "ray-data")
_HAVE_PATH = ("images", "arrays", "text", "csv", "parquet", "ray-data")
_COUNT = re.compile(r":(-?\d+)$")
_OPTIONS = re.compile(r"\?(?=[a-z_]+=)")
_HOST_AND_PORT = re.compile(r"(https?|s?ftp|ssh|smb|(web)?hdfs)://[^/?:]*:\d+", re.IGNORECASE)


@dataclass(frozen=True)
class Source:
    """A data source as written, taken apart. `count`: the number of training samples to use, from the first."""

    text: str
    name: str
    argument: str | None
    options: Mapping[str, str]
    count: int | None

    def allow(self, *keys: str) -> None:
        """Refuses options that this source does not know."""
        for key in self.options:
            if key not in keys:
                known = nearest(key, keys) if keys else "it has no options"
                raise DataError(f"data {self.text!r}: unknown option {key!r}; {known}")

    def needed_argument(self, what: str) -> str:
        if not self.argument:
            raise DataError(f"data {self.text!r}: {what} is missing; write {self.name}:{what.upper()}")
        return self.argument

    def no_argument(self) -> None:
        if self.argument is not None:
            raise DataError(
                f"data {self.text!r}: {self.argument!r} is not a number; write {self.name}:COUNT for the first samples"
            )

    def whole(self, key: str, default: int, *, least: int = 1) -> int:
        """An option that is a whole number."""
        value = self.options.get(key)
        if value is None:
            return default
        if not re.fullmatch(r"\d+", value) or int(value) < least:
            raise DataError(f"data {self.text!r}: {key}={value} must be a whole number of at least {least}")
        return int(value)


def parse(text: str) -> Source:
    name, colon, rest = text.partition(":")
    if "?" in name:
        name, rest = text[: text.index("?")], text[text.index("?") :]
    elif colon:
        rest = ":" + rest
    # `synthetic:8` is a shape, not a count: what must have an argument has it first.
    lone = name in _NEED_ARGUMENT and rest.count(":") < 2
    body, count = (rest, None) if lone else _split_count(name, rest, text)
    argument, options = _split_options(body, text)
    if "first" in options:
        if count is not None:
            raise DataError(f"data {text!r}: the count is given twice; keep either :{count} or first=")
        count = _count(options.pop("first"), text)
    return Source(text, name, argument[1:] if argument else None, options, count)


def without_count(source: Source) -> str:
    """The source as text, for all its samples: what a message or another process may name."""
    return _COUNT.sub("", source.text) if source.count is not None else source.text


def _split_count(name: str, rest: str, text: str) -> tuple[str, int | None]:
    found = _COUNT.search(rest)
    if not found:
        return rest, None
    # A folder may be called `run:5`, and `http://host:8000` ends in a port.
    if name in _HAVE_PATH and (Path(rest[1:]).exists() or _HOST_AND_PORT.fullmatch(rest[1:])):
        return rest, None
    return rest[: found.start()], _count(found[1], text)


def _count(value: str, text: str) -> int:
    if not re.fullmatch(r"\d+", value) or int(value) < 1:
        raise DataError(f"data {text!r}: the count {value} must be a whole number of at least 1")
    return int(value)


def _split_options(body: str, text: str) -> tuple[str, dict[str, str]]:
    found = list(_OPTIONS.finditer(body))
    if not found:
        return body, {}
    start = found[-1]
    options = {}
    for pair in body[start.end() :].split("&"):
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise DataError(f"data {text!r}: option {pair!r} must be KEY=VALUE")
        options[key] = unquote(value)
    return body[: start.start()], options


def split_items(value: str) -> Iterable[str]:
    """The items of an option written `a,b,c`."""
    return [item.strip() for item in value.split(",") if item.strip()]
