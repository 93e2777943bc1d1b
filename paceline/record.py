"""Saves and loads any record: one JSON file that names its kind and the version of its schema.

Records are frozen dataclasses. What a field may hold is read from its annotation, so a loaded record
equals the saved one and a file that lacks a field, or holds another type, is refused by name.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import json
import math
import os
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paceline.errors import OutputError, RecordError

SCHEMA = 3
OLDEST = {"run": 2, "events": 2, "simulation": 2, "scaling": 2, "plan": 2, "outcome": 2, "measurement": 3}
"""The oldest schema that is still read, for kinds that have changed."""

# Kinds are named, not imported: the classes live in rooms above this file.
KINDS = {
    "run": "paceline.training.run:Run",
    "evaluation": "paceline.training.evaluate:Evaluation",
    "measurement": "paceline.measurement.measurement:Measurement",
    "links": "paceline.measurement.links:LinkMeasurement",
    "feeding": "paceline.measurement.feeding:Feeding",
    "events": "paceline.strategy.event_record:EventRecord",
    "simulation": "paceline.simulation.time_record:TimeRecord",
    "scaling": "paceline.simulation.scaling:Scaling",
    "prediction": "paceline.cost.prediction:Prediction",
    "plan": "paceline.planning.plan:Plan",
    "verification": "paceline.cost.verification:Verification",
    "calibration": "paceline.cost.calibration:Calibration",
    "experiment": "paceline.experiment.experiment:Experiment",
    "outcome": "paceline.results.outcome:RunOutcome",
}


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
        (f.name, _reader(hints[f.name]), f.default is nothing and f.default_factory is nothing)
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
        return value

    return read


def write_atomically(path: Path, text: str) -> None:
    """Either the whole text is at `path` afterwards, or what was there before."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # A file name may hold bytes that are not text; a page that shows them escaped is better than none.
        with temporary.open("w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error


def dump(record: Any) -> dict[str, Any]:
    """A record as a JSON object, its schema and kind first."""
    kind = next(k for k, place in KINDS.items() if place == f"{type(record).__module__}:{type(record).__qualname__}")
    return {"schema": SCHEMA, "kind": kind, **to_json(record)}


def save(record: Any, path: Path) -> None:
    write_atomically(path, json.dumps(dump(record), indent=1, allow_nan=False) + "\n")


def load(path: str | Path) -> Any:
    """The record in `path`: a file, or a directory with a `record.json`."""
    path = Path(path)
    if path.is_dir():
        path = path / "record.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RecordError(f"no record at {path}") from None
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # not JSON, not text, or numbers and depths that nobody writes
        raise RecordError(f"{path} is not a whole record ({error}); it may have been cut short") from error
    if not isinstance(content, dict) or not isinstance(content.get("schema"), int):
        raise RecordError(f"{path} is JSON, but not a record of Paceline: it has no schema number")
    if content["schema"] > SCHEMA:
        raise RecordError(f"{path} has schema {content['schema']}, this version reads up to {SCHEMA}: update Paceline")
    kind = content.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise RecordError(f"{path} holds a {kind!r:.60}; known kinds: {', '.join(KINDS)}")
    if content["schema"] < OLDEST.get(kind, 0):
        raise RecordError(
            f"{path} has schema {content['schema']}, of an older version: this one reads a {kind} from schema "
            f"{OLDEST[kind]} on, make it again"
        )
    module, name = KINDS[kind].split(":")
    return from_json(getattr(importlib.import_module(module), name), content, path.name)
