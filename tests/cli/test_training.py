"""`train`, `evaluate` and `demo` from the command line: what they print, write and hand over."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace

import pytest
import torch

import paceline as package
from paceline import record
from paceline.cli.demo import SETTINGS
from paceline.cost.calibrations import bundled_calibrations


def test_the_defaults_learn_the_digits(trained):
    run = package.load(trained)
    assert run.status == "finished"
    assert run.test_accuracy >= 0.95
    assert len(run.epochs) == run.workload.epochs == 20


def test_a_run_leaves_a_record_a_checkpoint_and_a_page(trained):
    assert sorted(p.name for p in trained.iterdir()) == ["checkpoint.pt", "record.json", "summary.html", "trace.json"]


def test_the_record_says_what_was_done_on_what_and_how_it_went(trained):
    content = json.loads((trained / "record.json").read_text())
    assert (content["schema"], content["kind"], content["status"]) == (record.SCHEMA, "run", "finished")
    assert content["workload"]["network"] == "mlp" and content["workload"]["data"] == "digits"
    conditions = content["conditions"]
    assert conditions["device"] == ("cuda:0" if torch.cuda.is_available() else "cpu")
    assert conditions["threads"] >= 1
    assert conditions["torch"] == torch.__version__
    assert conditions["python"] == ".".join(map(str, sys.version_info[:3]))
    assert conditions["paceline"]
    assert set(content["step"]) == {"kind", "reason"} and content["step"]["reason"]
    assert content["updates"] == 20 * math.ceil(1437 / 100)
    assert content["samples_per_s"] > 0
    assert content["test_accuracy"] == content["epochs"][-1]["test_accuracy"]
    assert [epoch["epoch"] for epoch in content["epochs"]] == list(range(1, 21))
    for epoch in content["epochs"]:
        assert epoch["loss"] > 0 and epoch["wall_s"] > 0
        assert 0 <= epoch["train_accuracy"] <= 1 and 0 <= epoch["test_accuracy"] <= 1
    assert sum(epoch["wall_s"] for epoch in content["epochs"]) <= content["wall_s"]
    assert content["epochs"][-1]["loss"] < content["epochs"][0]["loss"]


def test_evaluating_gives_the_accuracy_of_the_record(paceline, trained):
    result = paceline("evaluate", trained, "--json", "-")
    run = package.load(trained)
    assert result.code == 0
    assert result.json["kind"] == "evaluation" and result.json["samples"] == 360
    assert result.json["accuracy"] == run.test_accuracy
    assert result.json["top_accuracy"] == run.test_top_accuracy
    assert result.json["loss"] == pytest.approx(run.test_loss)
    assert f"top-1 {100 * run.test_accuracy:.2f} %" in result.err
    assert paceline("evaluate", trained / "checkpoint.pt", "--json", "-").json["accuracy"] == run.test_accuracy


def test_evaluating_on_other_data(paceline, trained):
    """Noise of the same shape is classified by chance."""
    result = paceline("evaluate", trained, "--data", "synthetic:1x8x8/10:800", "--json", "-")
    assert result.json["data"] == "synthetic:1x8x8/10:800" and result.json["samples"] == 200
    assert result.json["accuracy"] < 0.5


def test_progress_is_a_line_an_epoch(paceline):
    result = paceline("train", "mlp", "--epochs", "3", "--out", "run")
    assert result.code == 0 and result.err == ""
    for epoch in (1, 2, 3):
        (line,) = [line for line in result.out.splitlines() if line.startswith(f"epoch {epoch}/3 ")]
        assert all(word in line for word in ("loss", "train top-1", "test top-1", "samples/s"))
    assert "mlp (3,760 parameters) on digits" in result.out
    assert "step: " in result.out and "test accuracy" in result.out
    assert "run: run   summary: run/summary.html" in result.out


def test_runs_without_a_directory_are_numbered(paceline, tmp_path):
    for _ in range(2):
        assert paceline("train", "mlp", "--epochs", "1", "--data", "digits:300").code == 0
    assert sorted(p.name for p in (tmp_path / "runs").iterdir()) == ["mlp-digits-300-1", "mlp-digits-300-2"]


def test_json_on_standard_output_is_alone_there(paceline, tmp_path):
    result = paceline("train", "mlp", "--epochs", "1", "--out", "run", "--json", "-")
    assert result.code == 0
    assert result.json == json.loads((tmp_path / "run" / "record.json").read_text())
    assert "epoch 1/1" in result.err, "people still see how it goes"


def test_json_in_a_file(paceline, tmp_path):
    result = paceline("train", "mlp", "--epochs", "1", "--out", "run", "--json", "deep/result.json")
    assert result.code == 0 and "epoch 1/1" in result.out
    assert package.load(tmp_path / "deep" / "result.json").workload == package.load(tmp_path / "run").workload


def test_flags_and_settings_reach_the_workload(paceline, tmp_path):
    result = paceline(
        "train", "mlp", "--data", "digits:200", "--batch", "20", "--epochs", "2",
        "--optimizer", "adam", "--lr", "0.01", "--device", "cpu", "--threads", "1",
        "--precision", "float64", "--seed", "5", "--step", "plain",
        "--set", "l2=0.001", "--set", "options.hidden=[12, 13]", "--set", "top=3", "--out", "run",
    )  # fmt: skip
    assert result.code == 0
    run = package.load(tmp_path / "run")
    assert run.workload == package.Workload(
        network="mlp", data="digits:200", batch=20, epochs=2, optimizer="adam", lr=0.01, device="cpu",
        threads=1, precision="float64", seed=5, l2=0.001, options={"hidden": [12, 13]}, top=3,
    )  # fmt: skip
    assert (run.step.kind, run.step.reason, run.updates) == ("plain", "asked for", 20)
    assert run.parameters == 64 * 12 + 12 + 12 * 13 + 13 + 13 * 10 + 10
    assert run.conditions.threads == 1 and run.conditions.precision == "float64"
    assert "top-3" in result.out


def test_the_same_seed_gives_the_same_run(paceline, tmp_path):
    for name, seed in (("a", "3"), ("b", "3"), ("c", "4")):
        assert paceline("train", "mlp", "--epochs", "2", "--seed", seed, "--device", "cpu", "--out", name).code == 0
    a, b, c = (package.load(tmp_path / name) for name in "abc")
    assert [e.loss for e in a.epochs] == [e.loss for e in b.epochs]
    assert [e.loss for e in a.epochs] != [e.loss for e in c.epochs]


def test_a_workload_file_and_a_network_of_the_users_own(paceline, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "own_network.py").write_text(
        "from torch import nn\n"
        "def build():\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, 30), nn.ReLU(), nn.Linear(30, 10))\n"
    )
    (tmp_path / "own.toml").write_text('network = "own_network:build"\nbatch = 50\nepochs = 4\nlr = 0.5\n')
    assert paceline("train", "own.toml", "--out", "run").code == 0
    run = package.load(tmp_path / "run")
    assert run.parameters == 64 * 30 + 30 + 300 + 10 and run.test_accuracy > 0.8
    assert paceline("evaluate", "run", "--json", "-").json["accuracy"] == run.test_accuracy


def test_placement_counts_operations_by_device(paceline, tmp_path):
    arguments = ["train", "mlp", "--epochs", "1", "--device", "cpu", "--out", "run", "--log-placement"]
    result = paceline(*arguments)
    (line,) = [line for line in result.out.splitlines() if line.startswith("placement: ")]
    count = package.load(tmp_path / "run").placement["cpu:0"]
    assert line == f"placement: {count:,} operations of a step on cpu:0" and count > 10
    assert package.load(tmp_path / "run").placement.keys() == {"cpu:0"}
    paceline("train", "mlp", "--epochs", "1", "--device", "cpu", "--out", "other")
    assert package.load(tmp_path / "other").placement == {}
    assert package.load(tmp_path / "other").epochs[0].loss == package.load(tmp_path / "run").epochs[0].loss


def test_a_diverging_run_fails_and_says_so_in_its_record(paceline, tmp_path):
    arguments = ["train", "mlp", "--optimizer", "sgd", "--lr", "1e20", "--epochs", "3", "--out", "run"]
    line = paceline(*arguments).refused(code=1)
    assert line.startswith("the loss became ") and "lower the learning rate (lr=1e+20)" in line
    assert line.endswith("the last good checkpoint is in run")
    run = package.load(tmp_path / "run")
    assert run.status == "diverged" and run.epochs == ()
    saved = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)["parameters"]
    assert all(torch.isfinite(value).all() for value in saved.values())


def test_a_finished_run_goes_on_for_more_epochs(paceline, trained_copy):
    before = package.load(trained_copy)
    result = paceline("train", "--resume", trained_copy, "--epochs", "22")
    assert result.code == 0 and "resuming after 20 epochs and 300 updates" in result.out
    after = package.load(trained_copy)
    assert after.epochs[:20] == before.epochs and [e.epoch for e in after.epochs[20:]] == [21, 22]
    assert (after.resumed, after.updates, after.status) == (1, 330, "finished")
    assert after.wall_s > before.wall_s
    assert paceline("evaluate", trained_copy, "--json", "-").json["accuracy"] == after.test_accuracy


def test_naming_the_network_again_is_no_obstacle_to_going_on(paceline, trained_copy):
    assert paceline("train", "mlp", "--resume", trained_copy, "--epochs", "21").code == 0
    assert len(package.load(trained_copy).epochs) == 21


@pytest.mark.parametrize(
    ("epochs", "least"),
    [
        pytest.param(4, 0.8, marks=pytest.mark.slow),
        pytest.param(SETTINGS["epochs"], 0.95, marks=pytest.mark.soak),
    ],
    ids=["short", "as it is"],
)
def test_the_demo_writes_a_run_with_a_page(paceline, tmp_path, monkeypatch, epochs, least):
    # Two threads on cores that other tests use too wait for each other most of the time.
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0}, raising=False)
    # Calibrating takes its time and has tests of its own; any calibration will do here.
    ready = replace(bundled_calibrations()["H200"], device="cpu", device_name="a CPU", cores=1)
    monkeypatch.setattr("paceline.cost.calibrating.calibrate", lambda *_, **__: ready)
    monkeypatch.setattr("paceline.cli.demo.SETTINGS", {**SETTINGS, "epochs": epochs})
    result = paceline("demo")
    assert result.code == 0
    place = tmp_path / "runs" / "demo-1"
    assert {"calibration.json", "report.html", "verification.json"} <= {p.name for p in place.iterdir()}
    run = package.load(place / "one-process")
    assert run.workload.network == "lenet5" and run.test_accuracy >= least
    for strategy in ("sync", "downpour"):
        assert package.load(place / strategy).distribution.workers == 2
    checked = package.load(place / "verification.json")
    assert checked.saved and checked.of_kind("iteration")[0].measured_s > 0
    assert f"{100 * run.test_accuracy:.2f}" in (place / "report.html").read_text()
    assert "report.html in a browser" in result.out.replace("\n", " ")


def test_a_run_that_ends_before_a_phase_says_so_at_the_beginning(paceline):
    output = paceline("train", "dbn", "--data", "digits:200", "--epochs", "2", "--device", "cpu").out
    said = "dbn ends before its phase 'fine-tune', which begins in epoch 7: train for more than `epochs=2`"
    assert said in output and output.index(said) < output.index("step: ")
