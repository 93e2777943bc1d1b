"""A record that was saved and loaded is the same record; a file that holds none is refused by name."""

from __future__ import annotations

import errno
import json
import math
import os
from dataclasses import replace
from pathlib import Path

import pytest

import paceline
from paceline import record
from paceline.errors import OutputError, RecordError
from paceline.training.evaluate import Evaluation
from paceline.workload import Workload
from tests.a_run import a_run

EVALUATION = Evaluation("runs/a", Workload(network="dnn", dropout=0.5), "digits", 360, 0.125, 0.75, 1.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "record.json"


def edited(path: Path, **changes) -> Path:
    """The saved run with some keys changed, or taken out where the value is `...`."""
    record.save(a_run(), path)
    content = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not ...}))
    return path


def refused(path: Path) -> str:
    with pytest.raises(RecordError) as raised:
        record.load(path)
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize("saved", [a_run(), EVALUATION, a_run(epochs=(), placement={}, resumed=3)])
def test_what_is_loaded_equals_what_was_saved(saved, path):
    record.save(saved, path)
    assert paceline.load(path) == saved
    assert type(paceline.load(path)) is type(saved)


def test_a_directory_stands_for_its_record(tmp_path, path):
    record.save(a_run(), path)
    assert record.load(tmp_path) == record.load(str(path)) == a_run()


def test_a_file_begins_with_its_schema_and_kind(path):
    record.save(a_run(), path)
    assert list(json.loads(path.read_text()))[:2] == ["schema", "kind"]
    assert json.loads(path.read_text())["kind"] == "run"
    record.save(EVALUATION, path)
    assert json.loads(path.read_text())["kind"] == "evaluation"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_json_cannot_hold_is_null_and_comes_back_as_nan(path, value):
    first = replace(a_run().epochs[0], test_accuracy=value)
    record.save(a_run(samples_per_s=value, epochs=(first,)), path)
    content = json.loads(path.read_text(), parse_constant=pytest.fail)
    assert content["samples_per_s"] is None and content["epochs"][0]["test_accuracy"] is None
    loaded = record.load(path)
    assert math.isnan(loaded.samples_per_s) and math.isnan(loaded.epochs[0].test_accuracy)
    assert replace(loaded, samples_per_s=0.0, epochs=()) == a_run(samples_per_s=0.0, epochs=())


def test_a_key_that_may_be_empty_stays_empty(path):
    record.save(replace(EVALUATION, workload=Workload(dropout=None)), path)
    assert record.load(path).workload.dropout is None


def test_a_whole_number_may_stand_where_a_number_is_expected(path):
    loaded = record.load(edited(path, wall_s=3))
    assert loaded.wall_s == 3.0 and isinstance(loaded.wall_s, float)


def test_a_field_added_since_takes_its_default(path):
    assert record.load(edited(path, resumed=..., placement=...)) == a_run(placement={})


def test_a_field_that_is_no_more_is_ignored(path):
    assert record.load(edited(path, colour="blue")) == a_run()


def test_a_file_that_is_not_there(tmp_path):
    assert refused(tmp_path / "none.json") == f"no record at {tmp_path / 'none.json'}"
    assert refused(tmp_path) == f"no record at {tmp_path / 'record.json'}"


def test_a_directory_in_the_records_place(path):
    (path / "record.json").mkdir(parents=True)
    assert refused(path).startswith(f"cannot read {path / 'record.json'}: ")


def test_a_file_cut_short_anywhere_is_refused(path):
    record.save(a_run(), path)
    whole = path.read_bytes()
    for length in [0, 1, 10, len(whole) // 2, len(whole) - 3]:
        path.write_bytes(whole[:length])
        assert "is not a Paceline record" in refused(path)


@pytest.mark.parametrize("content", [b"hello", b"\xff\xfe\x00", b"{'schema': 1}"])
def test_a_file_that_is_not_json_is_refused(path, content):
    path.write_bytes(content)
    assert f"{path} is not a Paceline record" in refused(path)


@pytest.mark.parametrize("content", ["[]", "3", "null", "{}", '{"schema": "1"}', '{"schema": null}'])
def test_json_that_is_no_record_is_refused(path, content):
    path.write_text(content)
    assert refused(path).endswith("it has no schema number")


def test_a_newer_schema_asks_for_an_update(path):
    text = refused(edited(path, schema=record.SCHEMA + 1))
    assert f"schema {record.SCHEMA + 1}" in text and "update Paceline" in text


@pytest.mark.parametrize("kind", ["walk", ..., None, 3, ["run"], {}])
def test_an_unknown_kind_is_refused(path, kind):
    text = refused(edited(path, kind=kind))
    assert repr(None if kind is ... else kind) in text and "known kinds: run, evaluation" in text


def test_a_missing_field_is_named(path):
    assert refused(edited(path, parameters=...)) == "record.json.parameters is missing"
    conditions = {**record.dump(a_run())["conditions"]}
    del conditions["threads"]
    assert refused(edited(path, conditions=conditions)) == "record.json.conditions.threads is missing"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"updates": "many"}, "record.json.updates should be int, not 'many'"),
        ({"updates": 1.5}, "record.json.updates should be int, not 1.5"),
        ({"updates": True}, "record.json.updates should be int, not True"),
        ({"updates": None}, "record.json.updates should be int, not None"),
        ({"wall_s": "long"}, "record.json.wall_s should be float, not 'long'"),
        ({"status": 3}, "record.json.status should be str, not 3"),
        ({"step": "flat"}, "record.json.step should be a table, not 'flat'"),
        ({"epochs": [3]}, "record.json.epochs[0] should be a table, not 3"),
        ({"placement": {"cpu:0": "x"}}, "record.json.placement.cpu:0 should be int, not 'x'"),
    ],
)
def test_a_value_of_another_type_is_named(path, changes, expected):
    assert refused(edited(path, **changes)) == expected


@pytest.mark.parametrize("changes", [{"epochs": {}}, {"epochs": 3}, {"placement": []}, {"trace": {"spans": 3}}])
def test_a_value_that_is_no_list_or_table_is_refused(path, changes):
    assert "should be" in refused(edited(path, **changes))


def test_saving_makes_the_directories_it_needs(tmp_path):
    record.save(a_run(), tmp_path / "a" / "b" / "record.json")
    assert record.load(tmp_path / "a" / "b") == a_run()


def test_a_full_disk_leaves_the_old_record(path, monkeypatch):
    record.save(a_run(), path)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match=f"cannot write {path}: No space left on device"):
        record.save(EVALUATION, path)
    assert record.load(path) == a_run()
    assert list(path.parent.iterdir()) == [path]


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot write"):
        record.save(a_run(), tmp_path / "file" / "record.json")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OutputError, match="cannot write"):
        record.save(a_run(), tmp_path / "folder")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("wall_s", -1.0),
        ("wall_s", 1e308),
        ("wall_s", None),
        ("updates", -1),
        ("updates", 10**30),
        ("samples_per_s", -1),
    ],
)
def test_a_time_or_count_that_cannot_be_one_is_refused_by_name(path, key, value):
    assert f"record.json.{key} should be a number from 0 to " in refused(edited(path, **{key: value}))


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_words_that_are_no_json_are_refused(path, word):
    edited(path, wall_s=12345)
    path.write_text(path.read_text().replace("12345", word))
    assert f"{word} is no JSON value" in refused(path)


def test_an_older_schema_asks_to_make_the_record_again(path):
    said = refused(edited(path, schema=record.OLDEST["run"] - 1))
    assert f"has schema {record.OLDEST['run'] - 1}, which is too old" in said and "make it again" in said


def test_a_table_by_number_has_numbers_for_keys():
    from paceline.record_fields import from_json
    from paceline.strategy.ledger import LedgerSummary

    assert from_json(LedgerSummary, {"staleness": {"0": 3, "12": 1}}, "ledger").mean_staleness == 3.0
    for key in ("", " ", "-1", "one", "9" * 5000):
        with pytest.raises(RecordError, match=r"ledger\.staleness should count by whole numbers"):
            from_json(LedgerSummary, {"staleness": {key: 1}}, "ledger")
