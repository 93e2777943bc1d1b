"""`results.csv` and `summary.csv` as pandas and spreadsheets take them: numbers are numbers, and nothing is nothing."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import pytest

from paceline import record
from paceline.results.run_row import METRICS
from paceline.results.table import ResultsTable, collect
from paceline.simulation.timing import time_workload
from paceline.simulation.virtual_cluster import VirtualCluster
from paceline.strategy.presets import find_strategy
from paceline.workload import Workload
from tests.a_run import a_run


@pytest.fixture(scope="module")
def tables(tmp_path_factory) -> tuple[ResultsTable, Path]:
    """Of runs of several kinds, some without what others have."""
    place = tmp_path_factory.mktemp("runs")
    workload = Workload("dnn", "digits", lr=1e-5, dropout=0.25)
    simulated = time_workload(
        workload, find_strategy("downpour"), 3, 5, VirtualCluster(), {"compute-time": "constant:1"}
    )
    saved = {
        "first": a_run(samples_per_s=1234567.875, parameters=61_000_000, wall_s=1e-7),
        "second": a_run(updates=1, train_s=0.1 + 0.2),
        "nothing": a_run(status="diverged", epochs=(), test_loss=math.nan, test_accuracy=math.nan),
        "simulated": simulated,
    }
    for name, made in saved.items():
        record.save(made, place / name / "record.json")
    found = collect(place)
    found.write(place / "tables")
    return found, place / "tables"


def cells_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def is_nothing(value: Any) -> bool:
    return value is None or value == "" or (isinstance(value, float) and math.isnan(value))


@pytest.mark.parametrize("name", ["results.csv", "summary.csv"])
def test_a_cell_is_the_number_itself_the_text_itself_or_empty(tables, name):
    found, place = tables
    rows = found.rows if name == "results.csv" else found.summary
    seen = set()
    for row, cells in zip(rows, cells_of(place / name), strict=True):
        for column, cell in cells.items():
            value = row.get(column)
            if is_nothing(value):
                assert cell == "", (column, cell)
            elif isinstance(value, bool):
                assert cell == str(value)
            elif isinstance(value, int | float):
                assert float(cell) == value and not set(cell) - set("0123456789.e+-"), (column, cell)
                seen.add(type(value))
            else:
                assert cell == value
    assert seen == {int, float}


def test_a_column_of_figures_holds_nothing_else(tables):
    for cells in cells_of(tables[1] / "results.csv"):
        for column in set(METRICS) & set(cells):
            assert cells[column] == "" or math.isfinite(float(cells[column]))


def test_no_column_that_holds_text_could_be_taken_for_numbers(tables):
    for column in ("run", "setting", "network", "status", "directory"):
        for cells in cells_of(tables[1] / "results.csv"):
            with pytest.raises(ValueError, match="could not convert"):
                float(cells[column])


def test_pandas_reads_them_without_being_told_anything(tables):
    pandas = pytest.importorskip("pandas")
    found, place = tables
    rows = pandas.read_csv(place / "results.csv")
    for column in set(METRICS) & set(rows.columns):
        assert pandas.api.types.is_numeric_dtype(rows[column]), column
    for column in ("lr", "batch", "epochs", "seed", "workers", "dropout"):
        assert pandas.api.types.is_numeric_dtype(rows[column]), column
    for column in ("run", "setting", "network", "status"):
        assert pandas.api.types.is_string_dtype(rows[column]), column
    for column in found.columns:
        expected = [is_nothing(row[column]) for row in found.rows]
        assert rows[column].isna().tolist() == expected, column
