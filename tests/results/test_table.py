"""Collecting reads directories alone: of experiments, of runs that belong to none, and past what is damaged."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

import paceline
from paceline import record
from paceline.errors import InputError, RecordError
from paceline.measurement.links import LinkMeasurement
from paceline.results.comparison_rows import PublishedNumber
from paceline.results.table import collect, spread
from tests.a_run import a_run
from tests.experiment.studies import table


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Three runs as `train` leaves them; the first two differ only in their seeds."""
    for number, changes in enumerate(({"seed": 0}, {"seed": 1}, {"seed": 0, "lr": 0.5})):
        run = a_run()
        workload = paceline.resolve("lenet5", {"data": "digits", "epochs": 2, **changes})
        record.save(a_run(workload=workload, test_accuracy=0.5 + 0.1 * number), tmp_path / f"run-{number}/record.json")
        assert run.status == "finished"
    return tmp_path


def test_runs_that_belong_to_no_experiment_are_grouped_by_their_settings(runs):
    found = collect(runs)
    assert [row["directory"] for row in found.rows] == [str(runs / f"run-{number}") for number in range(3)]
    assert [row["seed"] for row in found.rows] == [0, 1, 0]
    assert [(row["lr"], row["n"]) for row in found.summary] == [(0.002, 2), (0.5, 1)]
    assert found.summary[0]["test_accuracy_mean"] == pytest.approx(0.55)
    assert found.varied == ("lr",) and found.planned == 0


def test_a_table_prints_and_shows_a_row_of_means_per_setting(runs):
    found = collect(runs)
    first, header, *rows = str(found).splitlines()
    assert "runs 3" in first and header.split()[:2] == ["lr", "runs"] and "accuracy %" in header
    assert [row.split()[:2] for row in rows] == [["0.002", "2"], ["0.5", "1"]]
    assert repr(found) == f"<ResultsTable title={found.title!r}, runs=3>"
    assert "<td>0.002</td><td>2</td>" in found._repr_html_()


def test_a_run_a_folder_and_a_file_can_be_named(runs):
    record.save(a_run(), runs / "elsewhere.json")
    found = collect(runs / "run-0", runs, runs / "elsewhere.json")
    assert len(found.rows) == 4, "what is named twice counts once"


def test_what_is_damaged_is_skipped_named_and_counted(runs):
    (runs / "run-1" / "record.json").write_text((runs / "run-1" / "record.json").read_text()[:400])
    (runs / "run-3").mkdir()
    (runs / "run-3" / "record.json").write_text("[1, 2]")
    found = collect(runs)
    assert [Path(row["directory"]).name for row in found.rows] == ["run-0", "run-2"]
    assert [Path(skipped.place).parent.name for skipped in found.skipped] == ["run-1", "run-3"]
    assert "cut short" in found.skipped[0].reason and "no schema" in found.skipped[1].reason


def test_records_of_other_schemas_are_named(runs):
    old, new = runs / "run-0" / "record.json", runs / "run-1" / "record.json"
    for path, schema in ((old, 1), (new, 999)):
        path.write_text(json.dumps({**json.loads(path.read_text()), "schema": schema}))
    found = collect(runs)
    assert len(found.rows) == 1 and len(found.skipped) == 2
    assert "has schema 1, which is too old" in found.skipped[0].reason
    assert "has schema 999" in found.skipped[1].reason


def test_an_unfinished_run_is_no_result(runs):
    record.save(a_run(status="running"), runs / "run-9" / "record.json")
    counts = {(row["n"], row["unfinished"]) for row in collect(runs / "run-9").summary}
    assert counts == {(0, 1)}


def test_nothing_to_collect_is_an_error(tmp_path):
    with pytest.raises(RecordError, match="no records in"):
        collect(tmp_path)
    record.save(LinkMeasurement((), {}), tmp_path / "links.json")
    with pytest.raises(InputError, match="holds no run"):
        collect(tmp_path)
    with pytest.raises(InputError, match="no such file or directory"):
        collect(tmp_path / "none")
    with pytest.raises(InputError, match="name at least one directory"):
        collect()


def test_tables_hold_what_a_spreadsheet_can_read(runs, tmp_path):
    record.save(a_run(test_accuracy=math.nan, samples_per_s=math.nan), runs / "run-9" / "record.json")
    collect(runs).write(tmp_path / "tables")
    rows = table(tmp_path / "tables" / "results.csv")
    assert len(rows) == 4 and len(set(rows[0])) == len(rows[0])
    assert (rows[-1]["test_accuracy"], rows[-1]["options"]) == ("", '{"width": [6, 16]}')
    assert None not in rows[0], "every row has as many cells as there are columns"


def test_the_spread_of_nothing_and_of_one():
    assert all(math.isnan(value) for value in spread([]))
    mean, deviation, least, greatest = spread([2.0])
    assert (mean, least, greatest) == (2.0, 2.0, 2.0) and math.isnan(deviation)
    assert spread([1.0, 3.0]) == (2.0, pytest.approx(2**0.5), 1.0, 3.0)


def test_published_numbers_find_the_settings_they_are_for(runs):
    found = collect(runs)
    assert found.of(PublishedNumber("a", 0.6, metric="test_accuracy", where={"lr": 0.5})) == [pytest.approx(0.7)]
    assert len(found.of(PublishedNumber("both", 0.6, metric="test_accuracy"))) == 2
    assert found.of(PublishedNumber("none", 0.6)) == found.of(PublishedNumber("x", 1.0, metric="virtual_s")) == []


def test_load_tells_a_directory_by_what_is_in_it(runs):
    assert paceline.load(runs / "run-0") == record.load(runs / "run-0" / "record.json")
    with pytest.raises(RecordError, match="no record at"):
        paceline.load(runs)
