"""Everything under a directory is found, whatever kind it is; what is broken is named and skipped."""

from __future__ import annotations

import math
import os

import pytest

from paceline import record
from paceline.cost.prediction import Prediction
from paceline.cost.verification import Verification, compared
from paceline.errors import InputError, RecordError
from paceline.measurement.links import LinkMeasurement, LinkSpeed
from paceline.results.comparison_rows import CostRow, PredictionRow, PublishedRow
from paceline.results.records import Records, find_records
from paceline.results.run_result import run_results
from paceline.results.table import collect
from paceline.training.evaluate import Evaluation
from paceline.workload import Workload
from tests.a_run import a_run
from tests.reporting.examples import a_measurement, a_simulation, broken_records, save_run


def test_records_of_all_kinds_are_found_at_any_depth(tmp_path):
    save_run(a_run(), tmp_path / "one")
    record.save(a_measurement(), tmp_path / "one" / "measure" / "measurement.json")
    record.save(a_simulation(), tmp_path / "deep" / "er" / "time.json")
    record.save(LinkMeasurement((LinkSpeed("disk", 1e-4, 1e9),), {}), tmp_path / "links.json")
    record.save(Evaluation("runs/one", Workload(), "digits", 360, 0.1, 0.9, 1.0), tmp_path / "evaluation.json")
    found = find_records([tmp_path])
    name = tmp_path.name
    assert [place for place, _ in found.runs] == [f"{name}/one"]
    assert [place for place, _ in found.measurements] == [f"{name}/one/measure"]
    assert [place for place, _ in found.simulations] == [f"{name}/deep/er/time.json"]
    assert len(found.links) == len(found.evaluations) == 1
    assert found.runs[0][1] == a_run() and found.skipped == [] and sum(found.counts.values()) == 5


def test_a_file_can_be_named_and_counts_once(tmp_path):
    save_run(a_run(), tmp_path / "one")
    assert len(find_records([tmp_path / "one" / "record.json"]).runs) == 1
    assert len(find_records([tmp_path, tmp_path / "one", tmp_path / "one" / "record.json"]).runs) == 1


def test_the_measurement_of_a_worker_counts_once(tmp_path):
    save_run(a_run(), tmp_path / "one")
    for worker in ("worker-0", "worker-1"):
        record.save(a_measurement(), tmp_path / "one" / "measure" / f"{worker}.json")
    record.save(a_measurement(), tmp_path / "one" / "measure" / "worker-0" / "measurement.json")
    places = [place for place, _ in find_records([tmp_path]).measurements]
    home = f"{tmp_path.name}/one/measure"
    assert sorted(places) == [f"{home}/worker-0", f"{home}/worker-1.json"]


def test_what_is_broken_is_named_with_a_reason_and_the_rest_is_there(tmp_path):
    save_run(a_run(), tmp_path / "good")
    broken = broken_records(tmp_path / "bad")
    found = find_records([tmp_path])
    assert len(found.runs) == 1 and len(found.skipped) == broken
    reasons = {skipped.place.removeprefix(f"{tmp_path.name}/bad/"): skipped.reason for skipped in found.skipped}
    assert "not a Paceline record" in reasons["cut/record.json"] and "cut short" in reasons["empty/record.json"]
    assert reasons["newer/record.json"].startswith("has schema 999, this version reads up to")
    assert "dream" in reasons["unknown/record.json"] and "workload is missing" in reasons["lacking/record.json"]
    assert "line 2: predicted should be a number, not 'soon'" in reasons["rows/predictions.csv"]
    assert all(str(tmp_path) not in reason for reason in reasons.values()), "no place on a machine is told"


def test_nothing_at_all_is_an_error_that_says_what_to_do(tmp_path):
    (tmp_path / "notes.json").write_text("{}")
    with pytest.raises(RecordError, match=r"no records in .*: train, measure"):
        find_records([tmp_path])
    with pytest.raises(InputError, match="no such file or directory"):
        find_records([tmp_path / "missing"])
    with pytest.raises(InputError, match="name at least one directory"):
        find_records([])


def test_only_broken_records_are_an_error_with_the_first_reason(tmp_path):
    (tmp_path / "record.json").write_text("{")
    with pytest.raises(RecordError, match=r"one record, which cannot be read; .*record.json: not a Paceline record"):
        find_records([tmp_path])
    broken_records(tmp_path / "more")
    with pytest.raises(RecordError, match="11 records, none of which can be read"):
        find_records([tmp_path])


def test_what_an_experiment_is_still_working_on_does_not_count(tmp_path):
    save_run(a_run(), tmp_path / "runs" / "a")
    for folder in ("working", "damaged"):
        save_run(a_run(), tmp_path / folder / "b")
    assert len(find_records([tmp_path]).runs) == 3
    (tmp_path / "experiment.json").write_text("{}")
    assert len(find_records([tmp_path]).runs) == 1


def test_hidden_folders_and_links_that_lead_back_are_left_alone(tmp_path):
    save_run(a_run(), tmp_path / "a")
    save_run(a_run(), tmp_path / ".b")
    (tmp_path / "a" / "back").symlink_to(tmp_path, target_is_directory=True)
    assert len(find_records([tmp_path]).runs) == 1


def test_rows_beside_records_are_read_from_tables(tmp_path):
    (tmp_path / "predictions.csv").write_text("name,predicted,low,high,measured\na,2,1,3,2.5\nb,1,,,\n")
    (tmp_path / "published.csv").write_text("\ufeffname,published,ours,unit,source,more\nx,3.5,3.6,s,a study,1\n")
    (tmp_path / "costs.csv").write_text("name,amount\nfour nodes,1272.17\n")
    found = find_records([tmp_path])
    assert found.predictions[0] == PredictionRow("a", 2.0, 1.0, 3.0, 2.5)
    assert found.predictions[0].error == pytest.approx(-0.2) and found.predictions[0].inside is True
    assert math.isnan(found.predictions[1].error) and found.predictions[1].inside is None
    assert found.published == [PublishedRow("x", 3.5, 3.6, "s", "a study")] and found.costs == [
        CostRow("four nodes", 1272.17)
    ]


@pytest.mark.parametrize("text", ["", "named,predicted\n", "name,predicted\n,\n", "name,predicted\na\n"])
def test_a_table_without_its_columns_is_skipped(tmp_path, text):
    save_run(a_run(), tmp_path / "a")
    (tmp_path / "predictions.csv").write_text(text)
    (skipped,) = find_records([tmp_path]).skipped
    assert skipped.place.endswith("predictions.csv")


def test_a_name_that_is_no_text_is_no_obstacle(tmp_path):
    save_run(a_run(), tmp_path / os.fsdecode(b"runs\xff") / "<b>")
    assert find_records([tmp_path]).runs[0][0].endswith("<b>")


def a_prediction(batch: int = 8, device: str = "A Processor") -> Prediction:
    return Prediction("alexnet", batch, device, "flat", "float32", 2, 0.007, 0.006, 0.008, {}, (), 0.0, 0, 0, 0, "")


def test_a_predicted_iteration_is_compared_with_the_one_that_was_measured():
    m = a_measurement()
    found = Records(measurements=[("m", m)], expected=[a_prediction(), a_prediction(64), a_prediction(device="A GPU")])
    first, *others = found.all_predictions
    assert (
        first.name == "an iteration of alexnet at batch 8 on A Processor" and first.measured == m.iteration_s.median_s
    )
    assert all(math.isnan(row.measured) for row in others)


def test_a_verification_is_shown_as_predictions():
    row = compared("iteration", "iteration", 0.01, 0.0105, 0.009, 0.011)
    found = Records()
    assert found.add("v.json", Verification("alexnet", 8, "A Processor", "flat", True, (row,), a_prediction()))
    (made,) = found.predictions
    assert (made.predicted, made.measured, made.inside) == (0.01, 0.0105, True)


def test_a_results_csv_alone_is_enough_for_a_report(tmp_path):
    save_run(a_run(test_accuracy=0.5), tmp_path / "runs" / "a")
    save_run(a_run(workload=Workload("mlp", "digits"), test_accuracy=0.75), tmp_path / "runs" / "b")
    collect(tmp_path / "runs").write(tmp_path / "sent")
    found = run_results(find_records([tmp_path / "sent"]))
    assert [(run.label, run.accuracy, run.run) for run in found] == [("lenet5", 0.5, None), ("mlp", 0.75, None)]
