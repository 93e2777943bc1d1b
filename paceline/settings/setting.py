"""One setting: its name, type, default, help, bounds and where it applies; values are parsed and checked here.

A record that holds settings is a frozen dataclass whose fields are declared with `setting`. Everything else follows
from the fields: keyword arguments, TOML keys, command-line options, grid keys and columns. msgspec does the checking.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import sys
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

import msgspec

from paceline.errors import InputError, nearest
from paceline.settings.text import shown

Value = TypeVar("Value")

NAMES: dict[Any, str] = {
    bool: "true or false", int: "a whole number", float: "a number", str: "text", dict: "a table",
    tuple: "two numbers", list: "a list of texts", list[float]: "a list of numbers",
}  # fmt: skip
NONE_WORDS = ("none", "default")  # text for None, if a setting may be None
LARGEST = sys.float_info.max


@dataclass(frozen=True)
class Setting:
    """One field of a record. `name` is the keyword argument, the TOML key, the grid key and the column."""

    name: str
    kind: Any
    default: Any
    help: str = ""
    group: str = ""  # panel of the command-line help
    verbs: tuple[str, ...] = ()  # verbs with an option for it; other verbs take it with `--set`
    runs: tuple[str, ...] = ()  # kinds of run that it affects; empty: all
    several: tuple[str, ...] = ()  # verbs whose option takes several values, separated by commas
    metavar: str | None = None
    least: float | None = None
    above: float | None = None
    below: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    or_custom: bool = False  # whether a custom `module:name` is allowed, too
    check: Callable[[Any], object] | None = None  # raises `InputError` for an invalid value of the right type

    @property
    def option(self) -> str:
        return f"--{self.name.replace('_', '-')}"

    @property
    def kinds(self) -> tuple[Any, ...]:
        """The types a value may have, without None."""
        union = isinstance(self.kind, types.UnionType) or typing.get_origin(self.kind) is typing.Union
        return tuple(kind for kind in (typing.get_args(self.kind) if union else (self.kind,)) if kind is not type(None))

    @property
    def may_be_none(self) -> bool:
        return type(None) in typing.get_args(self.kind)

    def read(self, value: Any, error: type[InputError] = InputError) -> Any:
        """Checks a Python or TOML value. An integer is accepted for a float, a list for a tuple."""
        if value is None and self.may_be_none:
            return None
        return self._convert(value, value, error, strict=True)

    def parse(self, text: str, error: type[InputError] = InputError) -> Any:
        """Parses and checks text from the command line."""
        if self.may_be_none and text.lower() in NONE_WORDS:
            return None
        several = any(typing.get_origin(kind) in (tuple, list) for kind in self.kinds) and str not in self.kinds
        value = [word.strip() for word in text.strip("[]() ").split(",")] if several else text
        return self._convert(value, text, error, strict=False)

    def _convert(self, value: Any, given: Any, error: type[InputError], strict: bool) -> Any:
        try:
            found = msgspec.convert(value, self._checked, strict=strict)
        except msgspec.ValidationError:
            if isinstance(given, float | str) and _is_number(given) and not math.isfinite(float(given)):
                raise error(f"{self.name}={given} is not a finite number") from None
            written = given if isinstance(given, str) and _is_number(given) else shown(given)
            raise error(f"{self.name}={written} should be {self.expected}") from None
        if self.choices and found not in self.choices and not (self.or_custom and ":" in found):
            known = nearest(found, self.choices, or_custom=self.or_custom)
            raise error(f"{self.name} {found!r:.60} is unknown: {known}")
        if self.check is not None:
            self.check(found)
        return found

    @functools.cached_property
    def expected(self) -> str:
        words = {"of at least": self.least, "above": self.above, "below": self.below, "at most": self.most}
        limits = [f"{word} {limit:,}" for word, limit in words.items() if limit is not None]
        if self.least is not None and self.most is not None:
            limits = [f"from {self.least:,} to {self.most:,}"]
        pair = any(typing.get_origin(kind) is tuple for kind in self.kinds)
        named = [NAMES.get(kind) or NAMES[typing.get_origin(kind) or kind] for kind in self.kinds]
        if not {int, float, list[float]} & set(self.kinds) and not pair:
            limits = []
        example = f", e.g. {list(self.default)}" if pair else ""
        return f"{' or '.join(named)} {' and '.join(limits)}".strip() + example

    @functools.cached_property
    def _checked(self) -> Any:
        """The type for msgspec, with bounds on all numbers; floats are finite."""
        limits = {"ge": self.least, "gt": self.above, "lt": self.below, "le": self.most}
        given: dict[str, Any] = {name: limit for name, limit in limits.items() if limit is not None}
        finite = given | ({} if given.keys() & {"ge", "gt"} else {"ge": -LARGEST})
        finite |= {} if given.keys() & {"le", "lt"} else {"le": LARGEST}

        def bounded(kind: Any) -> Any:
            origin, arguments = typing.get_origin(kind), typing.get_args(kind)
            if kind is float:
                return Annotated[kind, msgspec.Meta(**finite)]
            if kind is int and given:
                return Annotated[kind, msgspec.Meta(**given)]
            return origin[tuple(bounded(each) for each in arguments)] if origin in (tuple, list) else kind

        return functools.reduce(lambda a, b: a | b, [bounded(kind) for kind in self.kinds])


def _is_number(given: float | str) -> bool:
    try:
        float(given)
    except ValueError:
        return False
    return True


def setting(default: Value, help: str = "", **declared: Any) -> Value:
    """Declares a field of a record as a setting with its name and type; `declared` are fields of `Setting`."""
    metadata = {"setting": Setting("", Any, default, help, **declared)}
    if isinstance(default, dict | list):
        return typing.cast(Value, field(default_factory=lambda: type(default)(default), metadata=metadata))
    return field(default=default, metadata=metadata)


@functools.cache
def settings_of(record: type) -> dict[str, Setting]:
    """The settings of a record, by name. Its attribute `COMMON` has defaults for all of them."""
    hints, common, found = typing.get_type_hints(record), getattr(record, "COMMON", {}), {}
    for each in dataclasses.fields(record):
        if declared := each.metadata.get("setting"):
            shared = {key: value for key, value in common.items() if not getattr(declared, key)}
            found[each.name] = dataclasses.replace(declared, name=each.name, kind=hints[each.name], **shared)
    return found


def check(record: Any, error: type[InputError]) -> None:
    """Checks all settings of a record; called in `__post_init__`."""
    kind: Any = type(record)
    for name, each in settings_of(kind).items():
        object.__setattr__(record, name, each.read(getattr(record, name), error))


def read(record: type, given: Mapping[str, Any], error: type[InputError], what: str) -> dict[str, Any]:
    """Parses settings of a record as users write them. Errors name the record by `what`, and the nearest known name."""
    known, found = settings_of(record), {}
    for written, value in given.items():
        name = written.replace("-", "_")
        if name not in known:
            raise error(f"no key {written!r} in {what}: {nearest(written, known)}")
        found[name] = known[name].parse(value, error) if isinstance(value, str) else value
    return found


def pick(record: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """The items of `given` that are settings of a record, parsed."""
    return read(record, {key: given[key] for key in settings_of(record) if key in given}, InputError, record.__name__)
