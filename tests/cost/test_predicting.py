"""Predictions end to end: ways to name a device, steps, records, and where calibrations are stored."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import paceline.cost.predicting as room
from paceline import record
from paceline.cluster import find_device
from paceline.cost.calibration import StepOverheads, overheads_key
from paceline.cost.calibrations import (
    bundled_calibrations,
    calibration_path,
    load_calibration,
    local_calibration,
    local_calibrations,
)
from paceline.cost.exchange import ExchangeCost
from paceline.cost.predicting import predict
from paceline.cost.workload_tracing import DataShape
from paceline.errors import InputError, RecordError
from paceline.measurement.links import LinkSpeed
from paceline.step.placement import processor_name
from paceline.workload import Workload, resolve
from tests.cost.invented import calibration, layer, measurement

DIGITS = DataShape("image", (1, 8, 8), 10, 1437)


def full() -> object:
    step_overheads = StepOverheads(
        {"matmul": 1.1}, {"matmul": 0.2}, 1e-6, 2e-6, load_s=3e-6, load_element_s=1e-9, networks=("a", "b")
    )
    made = calibration("cpu", count=3, step_overheads={"flat": step_overheads, "flat chain": StepOverheads()})
    exchange = (ExchangeCost("sync", 2, 1e-4, 1e-9),)
    return replace(made, links=(LinkSpeed("disk to host", 1e-4, 1e9),), exchange=exchange)


def test_a_calibration_survives_saving_and_loading(tmp_path):
    made, path = full(), tmp_path / "made.json"
    record.save(made, path)
    assert load_calibration(path) == made


def test_a_prediction_survives_saving_and_loading(tmp_path):
    made = predict(resolve("lenet5", {"batch": 8}), "H200")
    record.save(made, tmp_path / "made.json")
    assert record.load(tmp_path / "made.json") == made


def test_a_file_is_read_again_only_when_it_changed(tmp_path):
    path = tmp_path / "made.json"
    record.save(calibration(count=2), path)
    first = load_calibration(path)
    assert load_calibration(path) is first
    record.save(replace(first, cores=77), path)
    assert load_calibration(path).cores == 77


def test_a_file_that_is_not_a_calibration_is_rejected(tmp_path):
    record.save(measurement([layer("fc1", 1e-6, 1e-6)]), tmp_path / "measurement.json")
    with pytest.raises(InputError, match="holds a measurement, not a calibration"):
        load_calibration(tmp_path / "measurement.json")
    record.save(full(), tmp_path / "whole.json")
    text = (tmp_path / "whole.json").read_text()
    (tmp_path / "cut.json").write_text(text[: len(text) // 2])
    for name in ("cut.json", "missing.json"):
        with pytest.raises(RecordError, match=name):
            load_calibration(tmp_path / name)


def test_calibrations_made_here_are_found_by_the_device_s_name():
    with pytest.raises(InputError, match="has no calibration yet: run paceline calibrate"):
        local_calibration("cpu")
    assert local_calibrations() == []
    made = replace(calibration(), device_name=processor_name())
    record.save(made, calibration_path(made.device_name))
    assert local_calibration("cpu") == made and local_calibrations() == [made]
    for device in (None, "auto", "cpu"):
        found = predict(resolve("mlp", {"device": "cpu"}), device, data=DIGITS)
        assert found.basis == "calibrated here" and found.device == processor_name()


def test_a_device_name_becomes_a_file_name():
    assert calibration_path("NVIDIA H200").name == "nvidia-h200.json"
    assert calibration_path("Intel(R) Xeon(R) @ 2.20GHz").name == "intel-r-xeon-r-2-20ghz.json"


def test_bundled_calibrations_are_of_devices_in_the_catalogue():
    assert "H200" in bundled_calibrations()
    for name, found in bundled_calibrations().items():
        assert find_device(name).name == name
        assert found.sets and all(trials.shapes for trials in found.sets) and found.step_overheads


def test_all_ways_to_name_a_device_agree(tmp_path):
    path = tmp_path / "mine.json"
    record.save(bundled_calibrations()["H200"], path)
    workload = resolve("mlp")
    made = [
        predict(workload, device, data=DIGITS)
        for device in (
            "H200",
            "nvidia-h200".removeprefix("nvidia-"),
            find_device("H200"),
            bundled_calibrations()["H200"],
            str(path),
        )
    ]
    assert len({each.iteration_s for each in made}) == 1
    assert [each.basis for each in made[2:]] == ["calibrated elsewhere", "calibrated", "calibrated: mine.json"]


def test_a_prediction_has_all_fields():
    made = predict(resolve("lenet5", {"batch": 16}), "H200")
    assert (made.name, made.batch, made.step, made.precision, made.threads) == ("lenet5", 16, "graph", "float32", 0)
    assert sum(made.parts_s.values()) == pytest.approx(made.iteration_s)
    assert made.low_s < made.iteration_s < made.high_s and made.roofline_s < made.iteration_s
    assert made.samples == 1437 and made.epoch_s == 90 * made.iteration_s
    assert made.samples_per_s == 16 / made.iteration_s
    assert {"conv1", "output"} <= {row.name for row in made.layers}


def test_an_uncalibrated_operation_is_reported_and_widens_the_interval(tmp_path, monkeypatch):
    (tmp_path / "own_of_a_prediction.py").write_text(
        "import torch\nfrom torch import nn\n"
        "class Plain(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.first, self.last = nn.Linear(64, 64), nn.Linear(64, 10)\n"
        "    def middle(self, x): return x + x\n"
        "    def forward(self, x):\n"
        "        x = self.first(x.flatten(1))\n"
        "        for _ in range(20): x = self.middle(x)\n"
        "        return self.last(x)\n"
        "class Odd(Plain):\n"
        "    def middle(self, x): return torch.cumsum(x, 0)\n"
    )
    monkeypatch.chdir(tmp_path)
    plain, odd = (predict(Workload(f"own_of_a_prediction:{name}", batch=4096), "H200") for name in ("Plain", "Odd"))
    assert (plain.unknown, odd.unknown) == ((), ("cumsum",))
    assert odd.high_s / odd.low_s > plain.high_s / plain.low_s


@pytest.mark.parametrize(
    ("step", "device", "message"),
    [
        ("compiled", "H200", "the calibration of NVIDIA H200 has no ratios for compiled steps"),
        ("grpah", "H200", "step 'grpah' is unknown: did you mean graph"),
        ("graph", "cpu", "step 'graph' needs a GPU"),
    ],
)
def test_steps_that_cannot_be_predicted(step, device, message):
    where = device if device != "cpu" else calibration("cpu")
    with pytest.raises(InputError, match=message):
        predict(resolve("mlp"), where, step=step, data=DIGITS)


@pytest.mark.parametrize(("step", "network", "expected"), [("auto", "lenet5", "flat"), ("plain", "lenet5", "plain")])
def test_the_step_that_would_run(step, network, expected):
    assert predict(resolve(network), calibration("cpu"), step=step, data=DIGITS).step == expected


def test_overheads_of_the_exact_step_come_first():
    slow, slower = StepOverheads(loop_s=1.0), StepOverheads(loop_s=2.0)
    known = calibration("cpu", step_overheads={"flat": slow, overheads_key("flat", True): slower})
    chain, other = (predict(resolve(name), known, data=DIGITS).parts_s["loop"] for name in ("mlp", "lenet5"))
    assert (chain, other) == (2.0, 1.0)
    only = replace(known, step_overheads={"flat": slow})
    assert predict(resolve("mlp"), only, data=DIGITS).parts_s["loop"] == 1.0


def test_one_thread_has_its_own_overheads():
    several, one = StepOverheads(loop_s=2.0), StepOverheads(loop_s=1.0)
    key = overheads_key("flat", False, threads=1)
    assert key == "flat 1 thread" and overheads_key("flat", False, threads=2) == "flat"
    known = calibration("cpu", step_overheads={"flat": several, key: one})
    for threads, expected in ((1, 1.0), (2, 2.0)):
        workload = resolve("lenet5", {"threads": threads})
        assert predict(workload, known, data=DIGITS).parts_s["loop"] == expected
        for only in ({"flat": several}, {key: one}):  # what there is counts
            found = predict(workload, replace(known, step_overheads=only), data=DIGITS)
            assert found.parts_s["loop"] == next(iter(only.values())).loop_s


SLOWER = dict.fromkeys(("product", "convolution", "elementwise"), 1.5)


def test_drift_is_multiplied_in():
    medians, slow = (predict(resolve("mlp"), "H200", data=DIGITS, drift=drift) for drift in (None, SLOWER))
    assert slow.iteration_s == pytest.approx(1.5 * medians.iteration_s)


def test_a_built_in_network_is_traced_once_for_all_devices(monkeypatch):
    workload = resolve("lenet5", {"batch": 23})
    predict(workload, "H200", data=DIGITS)
    monkeypatch.setattr(room, "trace_workload", lambda *arguments: pytest.fail("read again"))
    for device in ("A100", "L4"):
        predict(replace(workload, seed=3), device, data=DIGITS)


def test_no_file_is_left_behind(empty_cache: Path):
    predict(resolve("mlp"), "H200", data=DIGITS)
    assert not list(empty_cache.rglob("*"))
