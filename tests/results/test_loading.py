"""`paceline.load`: every kind of record, by its file or by its directory, and what is said of damaged ones."""

from __future__ import annotations

import dataclasses
import importlib
import json
import types
import typing
from pathlib import Path
from typing import Any

import pytest

import paceline
from paceline import record
from paceline.advice.task import TaskDescription
from paceline.cluster import Device, find_device
from paceline.errors import RecordError
from paceline.experiment.experiment import Experiment
from paceline.experiment.planning import setting_id
from paceline.planning.objective import Objective
from tests.a_run import a_run

# Of those that check what they are given.
MADE = {
    Device: find_device("H200"), Experiment: Experiment("study", grid=({"lr": [0.1, 0.2]},), repetitions=2),
    Objective: Objective(epochs=3.0), TaskDescription: TaskDescription("classify", data="digits"),
}  # fmt: skip


def example(kind: Any) -> Any:
    """A value of a type, with something in everything that can hold something."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return {"a": [1, "b", None]}
    if origin is types.UnionType:
        return example(next(a for a in arguments if a is not type(None)))
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return an_example_of(kind)
    if origin is tuple:
        return (example(arguments[0]),) * 2 if arguments[1:] == (Ellipsis,) else tuple(map(example, arguments))
    if origin is dict:
        return {"3": example(arguments[1])}  # a key of every kind of table: counts are by whole numbers
    return {str: "a word", int: 3, float: 0.25, bool: True}[kind]


def an_example_of(kind: type) -> Any:
    hints = typing.get_type_hints(kind)
    needed = [f for f in dataclasses.fields(kind) if f.default is f.default_factory is dataclasses.MISSING]
    if kind in MADE:
        return MADE[kind]
    try:
        return kind(**{f.name: example(hints[f.name]) for f in dataclasses.fields(kind)})
    except ValueError:  # a workload or a strategy; they have defaults
        return kind(**{f.name: example(hints[f.name]) for f in needed})


@pytest.fixture(params=record.KINDS)
def saved(request, tmp_path) -> tuple[Any, Path]:
    module, name = record.KINDS[request.param].split(":")
    made, path = an_example_of(getattr(importlib.import_module(module), name)), tmp_path / "any name.json"
    record.save(made, path)
    return made, path


def test_every_kind_comes_back_as_it_was(saved):
    made, path = saved
    assert paceline.load(path) == made and type(paceline.load(path)) is type(made)


def test_the_only_record_of_a_directory_is_what_it_stands_for(saved):
    made, path = saved
    (path.parent / "trace.json").write_text('{"traceEvents": []}')
    assert paceline.load(path.parent) == made


def test_whatever_is_cut_short_is_named(saved):
    _, path = saved
    text = path.read_text()
    for length in (0, 1, len(text) // 10, len(text) // 2, len(text) - 2):
        path.write_text(text[:length])
        with pytest.raises(RecordError, match=r"any name\.json is not a Paceline record"):
            paceline.load(path)


def test_whatever_is_newer_asks_for_an_update(saved):
    _, path = saved
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema": record.SCHEMA + 1}))
    match = f"schema {record.SCHEMA + 1}, this version reads up to {record.SCHEMA}: update Paceline"
    with pytest.raises(RecordError, match=match):
        paceline.load(path)


def test_a_field_that_is_missing_is_named(saved):
    made, path = saved
    needed = [f for f in dataclasses.fields(made) if f.default is f.default_factory is dataclasses.MISSING]
    content = json.loads(path.read_text())
    del content[needed[-1].name]
    path.write_text(json.dumps(content))
    with pytest.raises(RecordError, match=f"any name.json.{needed[-1].name} is missing"):
        paceline.load(path)


@pytest.mark.parametrize(
    "content", [b"\x80\x04garbage", b"[" * 100_000, b'{"schema": ' + b"9" * 5_000 + b"}", b"null", b'{"schema": "1"}']
)
def test_whatever_else_a_file_holds_is_one_kind_of_error(tmp_path, content):
    (tmp_path / "record.json").write_bytes(content)
    with pytest.raises(RecordError, match=r"record\.json"):
        paceline.load(tmp_path)


def test_a_number_beyond_all_measure_is_named(tmp_path):
    record.save(a_run(), tmp_path / "record.json")
    content = json.loads((tmp_path / "record.json").read_text()) | {"wall_s": 10**400}
    (tmp_path / "record.json").write_text(json.dumps(content))
    with pytest.raises(RecordError, match=r"record.json.wall_s should be float"):
        paceline.load(tmp_path)


def test_a_run_comes_before_what_lies_beside_it_and_several_others_are_named(tmp_path):
    record.save(a_run(), tmp_path / "record.json")
    record.save(a_run(updates=1), tmp_path / "other.json")
    record.save(a_run(updates=2), tmp_path / "third.json")
    assert paceline.load(tmp_path) == a_run()
    (tmp_path / "record.json").unlink()
    with pytest.raises(RecordError, match=r"holds several records: name other.json or third.json"):
        paceline.load(tmp_path)


def test_a_place_that_is_not_there_or_holds_nothing(tmp_path):
    with pytest.raises(RecordError, match="no record at"):
        paceline.load(tmp_path / "none")
    with pytest.raises(RecordError, match="no record at"):
        paceline.load(tmp_path)


def test_an_id_of_a_setting_is_never_a_number():
    """A table whose only id is 1234567890, or 12e3456789, would be read as a column of numbers."""
    ids = {setting_id({"seed": number}) for number in range(20_000)}
    assert len(ids) == 20_000 and {len(name) for name in ids} == {10}
    for name in ids:
        with pytest.raises(ValueError, match="could not convert"):
            float(name)


def test_a_run_that_was_moved_knows_where_it_is(tmp_path):
    record.save(a_run(directory="/somewhere/else"), tmp_path / "record.json")
    assert paceline.load(tmp_path).directory == str(tmp_path)
