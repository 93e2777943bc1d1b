"""Turns records into JSON values and back: what a field may hold is read from its annotation and its name.

Times, sizes and rates are recognised by their names (`_s`, `_bytes`, `_per_s`, ...): they must be finite and not
negative, so that a damaged file is refused where it is read and not where a prediction comes out as nonsense.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import types
import typing
from collections.abc import Callable
from typing import Any

from paceline.errors import RecordError


def to_json(value: Any) -> Any:
    """Plain JSON values for a record; numbers that JSON cannot hold become null."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def from_json(kind: Any, value: Any, where: str) -> Any:
    """The value a field of type `kind` had before `to_json`; `where` names it in errors."""
    return _reader(kind)(value, where)


LONGEST_S, LARGEST, MOST_COUNT = 1e15, 1e30, 2**63
"""Seconds (30 million years), sizes and rates, and counts: beyond them a value is damage, and sums overflow."""
MAY_BE_NAN = {"may_be_nan": True}
"""Metadata of a field that holds a time only sometimes."""
MEASURED = {"measured": True}
"""Metadata of a measured time, from which what measuring costs was subtracted: noise may leave it below zero."""
NOISE_S = 1e-3
SIGNED = {"signed": True}
"""Metadata of a difference of two times, which may have either sign."""
BY_NUMBER = {"by_number": True}
"""Metadata of a table whose keys are whole numbers, as text."""
_SIZES = ("bytes", "flops", "bandwidth", "_per_s")


def _most(name: str) -> float | None:
    """The largest value of a field that holds a time, a size or a rate; None for any other field."""
    if name.endswith(_SIZES):
        return LARGEST
    return LONGEST_S if name.endswith("_s") or name == "seconds" else None


Reader = Callable[[Any, str], Any]
"""From a JSON value, and where it stands, to the value of a field."""


@functools.cache
def _reader(kind: Any) -> Reader:
    """Made once for each type: annotations take long to look into, and a trace has thousands of spans."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return lambda value, where: value
    if origin is types.UnionType or origin is typing.Union:
        return _union_reader(arguments)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _dataclass_reader(kind)
    if origin is tuple:
        return _tuple_reader(arguments)
    if origin is dict:
        return _table_reader(_reader(arguments[1]))
    if kind is float:
        return _read_float
    return _plain_reader(kind)


def _union_reader(arguments: tuple[Any, ...]) -> Reader:
    """Of a type and None, as records have them; of several types the first is taken."""
    read_one = _reader(next(a for a in arguments if a is not type(None)))
    if type(None) not in arguments:
        return read_one
    return lambda value, where: None if value is None else read_one(value, where)


def _dataclass_reader(kind: type) -> Reader:
    hints = typing.get_type_hints(kind)
    nothing = dataclasses.MISSING
    fields = [
        (f.name, _field_reader(f, hints[f.name]), f.default is nothing and f.default_factory is nothing)
        for f in dataclasses.fields(kind)
    ]

    def read(value: Any, where: str) -> Any:
        if not isinstance(value, dict):
            raise RecordError(f"{where} should be a table, not {value!r:.60}")
        given = {}
        for name, read_field, needed in fields:
            if name in value:
                given[name] = read_field(value[name], f"{where}.{name}")
            elif needed:
                raise RecordError(f"{where}.{name} is missing")
        return kind(**given)

    return read


def _field_reader(field: dataclasses.Field[Any], hint: Any) -> Reader:
    read, most = _reader(hint), _most(field.name)
    if field.metadata == BY_NUMBER:
        return _by_number(read)
    if most is None:
        return read
    usually_nan = isinstance(field.default, float) and math.isnan(field.default)
    may_be_nan = usually_nan or field.name.endswith("_per_s") or field.metadata == MAY_BE_NAN
    least = -NOISE_S if field.metadata == MEASURED else -most if field.metadata == SIGNED else 0.0

    def read_quantity(value: Any, where: str) -> Any:
        made = read(value, where)
        _check_quantity(made, where, least, most, may_be_nan)
        return made

    return read_quantity


def _by_number(read: Reader) -> Reader:
    def read_counts(value: Any, where: str) -> Any:
        made = read(value, where)
        for key in made:
            if not (key.isascii() and key.isdigit() and len(key) < 20):
                raise RecordError(f"{where} should count by whole numbers, not by {key!r:.60}")
        return made

    return read_counts


def _check_quantity(value: Any, where: str, least: float, most: float, may_be_nan: bool) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            _check_quantity(item, f"{where}.{key}", least, most, may_be_nan)
    elif isinstance(value, float | int) and not least <= value <= most and not (may_be_nan and math.isnan(value)):
        given = "null" if math.isnan(value) else f"{value:g}"
        raise RecordError(f"{where} should be a number from 0 to {most:g}, not {given}")


def _tuple_reader(arguments: tuple[Any, ...]) -> Reader:
    alike = _reader(arguments[0]) if arguments[1:] == (Ellipsis,) else None
    each = [] if alike else [_reader(argument) for argument in arguments]

    def read(value: Any, where: str) -> Any:
        if not isinstance(value, list):
            raise RecordError(f"{where} should be a list, not {value!r:.60}")
        readers = [alike] * len(value) if alike else each
        if len(readers) != len(value):
            raise RecordError(f"{where} should have {len(readers)} values, not {len(value)}")
        return tuple(readers[i](item, f"{where}[{i}]") for i, item in enumerate(value))

    return read


def _table_reader(read_item: Reader) -> Reader:
    def read(value: Any, where: str) -> Any:
        if not isinstance(value, dict):
            raise RecordError(f"{where} should be a table, not {value!r:.60}")
        return {key: read_item(item, f"{where}.{key}") for key, item in value.items()}

    return read


def _read_float(value: Any, where: str) -> float:
    if isinstance(value, float):
        return value
    if value is None:
        return math.nan
    if isinstance(value, int) and not isinstance(value, bool):
        with contextlib.suppress(OverflowError):
            return float(value)
    raise RecordError(f"{where} should be float, not {value!r:.60}")


def _plain_reader(kind: Any) -> Reader:
    def read(value: Any, where: str) -> Any:
        if isinstance(kind, type) and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
            raise RecordError(f"{where} should be {kind.__name__}, not {value!r:.60}")
        if kind is int and not 0 <= value < MOST_COUNT:
            raise RecordError(f"{where} should be a number from 0 to {MOST_COUNT:g}, not {value!r:.60}")
        return value

    return read
