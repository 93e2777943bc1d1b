"""`experiment.csv`: what it says of a measurement alone, of a run, and again after it was loaded."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import replace

import pytest

from paceline.measurement.measurement import IterationTime, Measurement, Spread
from paceline.reporting.record_files import (
    context_of,
    experiment_csv,
    experiment_of_run,
    write_tables,
)
from paceline.training.evaluate import ValidationTime
from paceline.training.measured_training import Quarters
from tests.a_run import a_run


def a_measurement(**changes) -> Measurement:
    nothing = Spread(1.0, 1.0, 1.0, 1.0)
    m = Measurement(
        "mlp", 100, "cpu", "A Processor", "flat", 100, 5, nothing, {}, {}, 1.0, 0.0, 0.0, 0.0, (), 1.0, 1.0, 1,
        conditions={"data": "digits"},
        kept=tuple(IterationTime(number, 1.0, sampled=False) for number in range(10, 100)),
    )  # fmt: skip
    return replace(m, **changes)


def row_of(text: str) -> dict[str, str]:
    (row,) = csv.DictReader(io.StringIO(text))
    return row


def test_the_warm_up_and_what_was_not_kept_count_as_what_is_beside_them():
    kept = tuple(IterationTime(number, 1.0 if number < 50 else 3.0, sampled=False) for number in range(10, 100, 7))
    experiment = context_of(a_measurement(kept=kept))
    assert experiment.reached_s[0.25] == 25.0
    assert experiment.reached_s[0.5] == pytest.approx(50.0, abs=8)
    assert experiment.training_s == experiment.reached_s[1.0] == pytest.approx(200.0, abs=15)


def test_sampled_iterations_count_by_the_overhead_alone():
    kept = tuple(IterationTime(number, 50.0 if number % 20 == 0 else 1.0, number % 20 == 0) for number in range(100))
    assert context_of(a_measurement(kept=kept, overhead=0.02)).training_s == pytest.approx(102.0)


def test_the_row_names_configuration_times_and_places(tmp_path):
    experiment = context_of(a_measurement(), ValidationTime(2.5, "one validation of 360 samples"))
    row = row_of(experiment_csv(a_measurement(), experiment, tmp_path))
    assert (row["network"], row["batch"], row["setting_data"]) == ("mlp", "100", "digits")
    assert [row[f"at_{p}_percent_s"] for p in (25, 50, 75, 100)] == ["25.0", "50.0", "75.0", "100.0"]
    assert (row["validation_s"], row["validation"]) == ("2.5", "one validation of 360 samples")
    assert row["output"] == str(tmp_path) and row["output_checkpoint"] == ""


def test_a_run_tells_its_own_times_and_files(tmp_path):
    (tmp_path / "record.json").touch()
    quarters = Quarters(planned=4)
    quarters.add(2, 3.0)
    experiment = experiment_of_run(a_run(), quarters, tmp_path)
    row = row_of(experiment_csv(a_measurement(), experiment, tmp_path / "measure"))
    assert (row["training_s"], row["at_50_percent_s"], row["at_100_percent_s"]) == ("3.0", "3.0", "")
    assert (row["validation_s"], row["validation"]) == ("1.0", "all 1 validations of the run")
    assert row["output_record"] == str(tmp_path / "record.json") and row["output_checkpoint"] == ""


def test_what_was_saved_is_kept_when_a_measurement_is_shown_again(tmp_path):
    m, experiment = a_measurement(), context_of(a_measurement(), ValidationTime(2.5, "one validation of 360 samples"))
    write_tables(m, tmp_path, experiment)
    saved = (tmp_path / "experiment.csv").read_text()
    for again in (tmp_path, tmp_path / "copy"):
        write_tables(m, again, saved=tmp_path)
        assert (again / "experiment.csv").read_text() == saved and row_of(saved)["validation_s"] == "2.5"


def test_without_a_validation_the_cell_is_empty_with_a_reason(tmp_path):
    row = row_of(experiment_csv(a_measurement(), context_of(a_measurement()), tmp_path))
    assert (row["validation_s"], row["validation"]) == ("", "not measured")
    assert math.isnan(context_of(a_measurement()).validation.seconds)
