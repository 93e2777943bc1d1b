"""`paceline verify`: predicted beside measured, part by part; and what cannot be compared is said in one line."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import paceline as package
from paceline import record
from paceline.cost.exchange import ExchangeCost, protocol_of
from paceline.cost.prediction import LayerPrediction, Prediction
from paceline.cost.verification import compare_measurement, compared
from paceline.errors import InputError
from paceline.reporting import verification
from paceline.results.records import find_records
from paceline.strategy.presets import find_strategy
from paceline.workload import Workload
from tests.a_run import a_run
from tests.reporting.examples import a_distribution, a_measurement


def a_prediction(**changes: Any) -> Prediction:
    """Of what `a_run` and `a_measurement` tell: conv1 is twice as long as predicted, conv2 as predicted."""
    layers = (
        LayerPrediction("conv1", "Conv2d", 0.5e-4, 1e-4, 1e-5, 1.2e-4, 1.8e-4, 3e8),
        LayerPrediction("conv2", "Conv2d", 2e-4, 4e-4, 1e-5, 5e-4, 7e-4, 3e8),
        LayerPrediction("norm", "BatchNorm2d", 1e-5, 1e-5, 0.0, 1e-5, 3e-5, 0.0),
    )
    parts = {"load": 1e-5, "forward": 2e-3, "backward": 4e-3, "update": 1e-4, "copy": 0.0}
    made = Prediction(
        "alexnet", 8, "A Processor", "flat", "float32", 2, 6.5e-3, 6e-3, 7e-3, parts, layers, 5e-3, 10**6, 4 * 61_706,
        1437, "calibrated here",
    )  # fmt: skip
    return replace(made, **changes)


@pytest.fixture
def asked(monkeypatch) -> list[tuple[Workload, str, str]]:
    """What was predicted now, where nothing was saved."""
    seen: list[tuple[Workload, str, str]] = []

    def predict(workload: Workload, device: str, step: str) -> Prediction:
        seen.append((workload, device, step))
        return a_prediction(name=workload.network, batch=workload.batch)

    monkeypatch.setattr(verification, "predict_now", predict)
    return seen


def measured(place: Path, **changes: Any) -> Path:
    record.save(a_measurement(**changes), place / "measurement.json")
    return place


def test_a_prediction_for_another_device_is_noted():
    found = a_measurement(device_name="Another Processor")
    other = package.verify(a_prediction(), found)
    assert "predicted for A Processor, but measured on Another Processor" in other.notes and "A Processor, but" in str(
        other
    )
    assert not any(
        "measured on" in note for note in package.verify(a_prediction(device="Another Processor"), found).notes
    )
    same = a_measurement(device_name="NVIDIA H200")
    assert not any("measured on" in note for note in package.verify(a_prediction(device="H200"), same).notes)


def row_of(found: Any, name: str, kind: str | None = None) -> dict[str, Any]:
    return next(row for row in found["rows"] if row["name"] == name and kind in (None, row["kind"]))


# A measurement


def test_a_measurement_is_compared_part_by_part(paceline, tmp_path):
    place = measured(tmp_path / "m")
    record.save(a_prediction(), place / "prediction.json")
    result = paceline("verify", place, "--json", "v.json")
    assert result.code == 0 and result.err == ""
    for words in (
        "alexnet at batch 8 on A Processor",
        "calibrated here",
        "iteration",
        "forward",
        "conv1",
        "intervals cover the measured time",
    ):
        assert words in result.out
    assert "predicted now" not in result.out
    found = record.load(tmp_path / "v.json")
    assert found == package.load(tmp_path / "v.json") and found.saved and found.prediction == a_prediction()
    rows = {(row.kind, row.name): row for row in found.rows}
    iteration = rows["iteration", "iteration"]
    assert iteration.measured_s == pytest.approx(a_measurement().iteration_s.median_s) and iteration.within is True
    assert iteration.error == pytest.approx(6.5e-3 / iteration.measured_s - 1)
    assert rows["layer", "conv1"].error == pytest.approx(-0.5) and rows["layer", "conv1"].within is False
    assert rows["layer", "conv2"].error == pytest.approx(0.0, abs=1e-9) and rows["layer", "conv2"].within is True
    assert rows["part", "forward"].within is None and math.isnan(rows["part", "forward"].low_s)
    assert ("part", "copy") not in rows and ("layer", "norm") not in rows
    assert found.coverage == (2, 3)
    assert any("but not measured: norm" in note for note in found.notes)
    assert any("but not predicted: conv3, conv4, conv5 and conv6" in note for note in found.notes)


def test_a_report_shows_a_verification_once(paceline, tmp_path):
    place = measured(tmp_path / "m")
    record.save(a_prediction(), place / "prediction.json")
    assert paceline("verify", place, "--json", "v.json").code == 0
    found = record.load(tmp_path / "v.json")
    records = find_records([place, tmp_path / "v.json"])
    names = [row.name for row in records.all_predictions]
    assert not records.skipped and names.count("an iteration of alexnet at batch 8 on A Processor") == 1
    where = "of alexnet at batch 8 on A Processor"
    assert f"layer conv2 {where}" in names and f"forward {where}" in names and len(names) == len(set(names))
    assert f"layer conv1 {where}" not in names  # less than a twentieth
    (iteration,) = found.of_kind("iteration")
    assert all(max(row.predicted, row.measured) >= iteration.measured_s / 20 for row in records.all_predictions)


def test_rows_in_json_have_what_was_promised(paceline, tmp_path):
    place = measured(tmp_path / "m")
    record.save(a_prediction(), place / "prediction.json")
    found = paceline("verify", place, "--json", "-").json
    assert found["kind"] == "verification"
    keys = {"name", "kind", "predicted_s", "low_s", "high_s", "measured_s", "error", "within"}
    assert all(row.keys() == keys for row in found["rows"])
    assert row_of(found, "forward", "part")["low_s"] is None


def test_without_a_saved_prediction_one_is_made_now_and_that_is_said(paceline, tmp_path, asked):
    result = paceline("verify", measured(tmp_path / "m", conditions={"data": "digits", "threads": "2"}))
    assert result.code == 0 and "no prediction was saved: predicted now" in result.out
    assert "does not have all settings" in result.out
    ((workload, device, step),) = asked
    assert (workload.network, workload.batch, workload.data, workload.threads) == ("alexnet", 8, "digits", 2)
    assert (device, step) == ("A Processor", "flat")


def test_another_device_can_be_named_for_what_is_predicted_now(paceline, tmp_path, asked):
    place = measured(tmp_path / "m")
    assert paceline("verify", place, "--device", "EPYC 7763").code == 0
    assert asked[0][1] == "EPYC 7763"
    record.save(a_prediction(), place / "prediction.json")
    assert "has a saved prediction" in paceline("verify", place, "--device", "EPYC 7763").refused()


# A run


def saved_run(place: Path, **changes: Any) -> Path:
    record.save(a_run(**changes), place / "record.json")
    return place


def test_a_run_is_compared_by_its_throughput_and_its_epochs(paceline, tmp_path, asked):
    result = paceline("verify", saved_run(tmp_path / "run"), "--json", "-")
    found = result.json
    run = a_run()
    assert [row["name"] for row in found["rows"]] == ["iteration", "epoch"]
    assert row_of(found, "iteration")["measured_s"] == pytest.approx(64 / run.samples_per_s)
    assert row_of(found, "epoch")["measured_s"] == pytest.approx(run.train_s / 46 * 23)
    assert row_of(found, "epoch")["predicted_s"] == pytest.approx(23 * 6.5e-3)
    ((workload, device, step),) = asked
    assert workload == replace(run.workload, threads=2) and (device, step) == ("A Processor", "flat")


def test_a_measured_run_has_its_layers_too(paceline, tmp_path):
    place = saved_run(tmp_path / "run", workload=Workload(network="alexnet", batch=8))
    measured(place / "measure")
    record.save(a_prediction(), place / "prediction.json")
    for named in (place, place / "measure"):
        found = paceline("verify", named, "--json", "-").json
        assert {row["kind"] for row in found["rows"]} == {"iteration", "part", "layer", "epoch"}
        assert found["saved"] and len([row for row in found["rows"] if row["name"] == "iteration"]) == 1


def test_a_prediction_for_something_else_is_noted(paceline, tmp_path):
    place = saved_run(tmp_path / "run")
    record.save(a_prediction(batch=32, step="plain", precision="bfloat16"), place / "prediction.json")
    result = paceline("verify", place)
    assert result.code == 0
    for words in (
        "batch 32, but the run used 64",
        "step plain, but the run used flat",
        "bfloat16, but the run used float32",
    ):
        assert words in result.out


def test_workers_are_compared_with_a_simulation_of_them(paceline, tmp_path):
    distribution = replace(a_distribution("downpour", 2), driver="local")
    place = saved_run(tmp_path / "run", distribution=distribution)
    for worker in range(2):
        record.save(a_measurement(), place / "measure" / f"worker-{worker}.json")
    record.save(a_prediction(batch=64), place / "prediction.json")
    found = paceline("verify", place, "--json", "-").json
    names = [row["name"] for row in found["rows"]]
    assert names == ["a worker's step", "computing", "communicating", "waiting", "forward", "backward", "epoch"]
    step = row_of(found, "a worker's step")
    last_s = a_run().epochs[-1].wall_s  # the first epoch has the beginning in it
    assert step["measured_s"] == pytest.approx(last_s / 11.5) and step["predicted_s"] > 6e-3
    parts = [row_of(found, name) for name in ("computing", "communicating", "waiting")]
    assert sum(part["predicted_s"] for part in parts) == pytest.approx(step["predicted_s"])
    assert sum(part["measured_s"] for part in parts) == pytest.approx(sum(a_measurement().parts_s.values()))
    assert row_of(found, "epoch")["measured_s"] == last_s


def test_shards_of_the_server_are_noted(paceline, tmp_path):
    distribution = replace(a_distribution("downpour", 2), driver="local", server_shards=3)
    place = saved_run(tmp_path / "run", distribution=distribution)
    record.save(a_prediction(batch=64), place / "prediction.json")
    notes = paceline("verify", place, "--json", "-").json["notes"]
    assert "the run had 3 shards of the server: the prediction assumes one" in notes


def test_what_a_calibration_knows_of_such_workers_is_preferred(paceline, tmp_path):
    cores = a_run().conditions.cores
    cost = ExchangeCost(protocol_of(find_strategy("downpour")), 2, fixed_s=1e-3, byte_s=1e-9, cores=cores)
    place = saved_run(tmp_path / "run", distribution=replace(a_distribution("downpour", 2), driver="local"))
    record.save(a_prediction(batch=64, exchange=(cost,)), place / "prediction.json")
    found = paceline("verify", place, "--json", "-").json
    assert row_of(found, "a worker's step")["predicted_s"] == pytest.approx(6.5e-3 + 1e-3 + 1e-9 * 4 * 61_706)
    assert row_of(found, "computing")["predicted_s"] == pytest.approx(6.5e-3)
    parts = [row_of(found, name) for name in ("communicating", "waiting")]
    assert sum(part["predicted_s"] for part in parts) == pytest.approx(1e-3 + 1e-9 * 4 * 61_706)
    assert all(part["measured_s"] > 0 for part in parts)


@pytest.mark.slow
def test_a_real_run_on_several_workers_can_be_verified(paceline, tmp_path, asked):
    words = ["--data", "digits", "--epochs", 2, "--strategy", "sync", "--workers", 2, "--out", "run"]
    assert paceline("train", "dnn", *words).code == 0
    result = paceline("verify", "run")
    assert result.code == 0, result.err
    assert "a worker's step" in result.out and "epoch" in result.out


def test_a_real_run_s_measurement_can_be_verified(paceline, tmp_path, asked):
    words = ["--data", "digits", "--epochs", 3, "--threads", 1, "--device", "cpu", "--measure", "--out", "run"]
    assert paceline("train", "lenet5", *words).code == 0
    found = paceline("verify", "run", "--json", "-").json
    assert not found["saved"] and row_of(found, "forward", "part")["measured_s"] > 0
    assert asked[0][0].network == "lenet5" and asked[0][0].threads == 1


# What cannot be compared


def test_a_directory_without_a_run_is_refused(paceline, tmp_path):
    (tmp_path / "empty").mkdir()
    assert "holds neither a run (record.json) nor a measurement" in paceline("verify", "empty").refused()
    assert paceline("verify", "nowhere").refused() == "nowhere: no such directory"


@pytest.mark.parametrize("name", ["record.json", "measurement.json", "prediction.json"])
def test_a_record_that_was_cut_short_is_refused_by_name(paceline, tmp_path, name):
    place = saved_run(tmp_path / "run") if name != "measurement.json" else measured(tmp_path / "run")
    record.save(a_prediction(), place / "prediction.json")
    text = (place / name).read_text()
    (place / name).write_text(text[: len(text) // 2])
    line = paceline("verify", place).refused()
    assert name in line and "cut short" in line


def test_a_record_of_another_kind_is_refused(paceline, tmp_path):
    place = saved_run(tmp_path / "run")
    record.save(a_run(), place / "prediction.json")
    assert "holds a run, not a prediction" in paceline("verify", place).refused()


def test_a_simulated_run_was_not_measured(paceline, tmp_path):
    place = saved_run(tmp_path / "run", distribution=a_distribution())
    assert "is a simulated run: there are no measured times to compare" in paceline("verify", place).refused()


def test_a_run_that_stopped_at_once_has_nothing_to_compare(paceline, tmp_path, asked):
    place = saved_run(tmp_path / "run", samples_per_s=math.nan, updates=0, epochs=(), status="interrupted")
    assert "was too short" in paceline("verify", place).refused()


def test_a_device_without_a_calibration_is_one_line(paceline, tmp_path):
    line = paceline("verify", saved_run(tmp_path / "run")).refused()
    assert "A Processor has no calibration and is not in the catalogue: run paceline calibrate" in line


def test_what_cannot_be_predicted_is_one_line(paceline, tmp_path, monkeypatch):
    def predict(workload, device, step):
        raise InputError("a compiled step cannot be predicted from its operations: measure it")

    monkeypatch.setattr(verification, "predict_now", predict)
    assert "compiled step cannot be predicted" in paceline("verify", saved_run(tmp_path / "run")).refused()


def test_a_container_without_time_of_its_own_has_no_interval():
    prediction = a_prediction()
    container = replace(prediction.layers[0], forward_s=0.0, backward_s=0.0, low_s=0.0, high_s=0.0)
    changed = replace(prediction, layers=(container, *prediction.layers[1:]))
    row = next(row for row in compare_measurement(changed, a_measurement()) if row.name == container.name)
    assert row.measured_s > 0 and row.within is None and math.isnan(row.high_s)


def test_a_comparison_has_its_error_and_whether_its_interval_covers():
    row = compared("x", "part", 3.0, 2.0, 1.0, 2.5)
    assert (row.error, row.within) == (0.5, True)
    assert compared("x", "part", 3.0, 2.0, 2.5, 4.0).within is False
    nothing = compared("x", "part", 3.0, 0.0)
    assert math.isnan(nothing.error) and nothing.within is None
