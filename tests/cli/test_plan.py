"""`plan`, and `train --plan`: from a question to a run with the prediction beside it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from paceline import record
from paceline.cost.prediction import Prediction
from paceline.planning import planning, running
from paceline.planning.plan import Plan
from tests.planning.invented import InventedPredictions

LAB = """
name = "lab"
network = "1 Gb/s Ethernet"

[[machines]]
like = "g5.xlarge"
count = 4

[[machines]]
name = "desk"
devices = "Ryzen 9 7950X"
memory = "64 GiB"
price = 0.2
network = "1 Gb/s Ethernet"
"""


@pytest.fixture(autouse=True)
def invented(monkeypatch, tmp_path_factory):
    """Predictions are invented: what is tested here is what is made of them. This machine is not calibrated."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    predictions = InventedPredictions(samples=1437, parameter_bytes=200_000, flops=2e8)
    monkeypatch.setattr(planning, "default_predict", lambda workload: predictions)
    return predictions


@pytest.fixture
def lab(paceline, tmp_path):
    (tmp_path / "lab.toml").write_text(LAB)
    return "lab.toml"


def test_a_plan_is_shown_kept_and_handed_over(paceline, lab, tmp_path):
    result = paceline("plan", "mlp", "--cluster", lab, "--out", "plans/one", "--json", "plan-again.json")
    assert result.code == 0 and result.err == ""
    kept = record.load(tmp_path / "plans/one/plan.json")
    assert isinstance(kept, Plan) and kept.cluster == "lab" and kept.workload.network == "mlp"
    assert json.loads((tmp_path / "plan-again.json").read_text()) == record.dump(kept)
    assert f"pick: {kept.pick}" in result.out
    for reason in kept.reasons:
        assert reason in " ".join(result.out.split())
    (marked,) = [line for line in result.out.splitlines() if line.startswith("*")]
    assert kept.pick.candidate.machine in marked
    assert "paceline train --plan plans/one/plan.json" in result.out
    page = (tmp_path / "plans/one/summary.html").read_text(encoding="utf-8").replace("\u00a0", " ")
    assert ">Plan</h2>" in page and str(kept.pick) in page


def test_json_alone_is_on_standard_output(paceline, lab):
    result = paceline("plan", "mlp", "--cluster", lab, "--json", "-")
    assert result.json["kind"] == "plan" and "pick: " in result.err


def test_a_deadline_that_cannot_be_kept_ends_with_one_and_shows_the_nearest(paceline, lab):
    result = paceline("plan", "mlp", "--cluster", lab, "--deadline", "1s", "--epochs", "100000")
    assert result.refused(1).startswith("no plan is within 1 s: the fastest takes ")
    assert "pick: " in result.out


def test_a_budget_that_is_too_small_ends_with_one(paceline, lab):
    result = paceline("plan", "mlp", "--cluster", lab, "--budget", "0.000001")
    assert result.refused(1).startswith("no plan is within 1e-06 USD: the cheapest takes ")


def test_machines_of_the_catalogue_by_name(paceline):
    result = paceline("plan", "mlp", "--cluster", "g5.xlarge,g6.xlarge", "--json", "-")
    assert {one["candidate"]["machine"] for one in result.json["simulated"]} == {"g5.xlarge", "g6.xlarge"}


def test_only_the_strategies_asked_for(paceline, lab):
    result = paceline("plan", "mlp", "--cluster", lab, "--strategies", "sync,downpour", "--json", "-")
    assert {one["candidate"]["strategy"]["name"] for one in result.json["simulated"]} == {"sync", "downpour"}


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--epochs", "3", "--target-accuracy", "0.9"], "--epochs and --target-accuracy cannot be combined"),
        (["--deadline", "24"], "--deadline 24 should be a time with a unit, e.g. 90min, 24h, 2d or 1d12h"),
        (["--deadline", "soon"], "--deadline soon should be a time"),
        (["--target-accuracy", "97"], "--target-accuracy 97 should be above 0"),
        (["--target-accuracy", "-1"], "--target-accuracy -1 should be above 0"),
        (["--budget", "-5"], "--budget -5 should be an amount of money from 0"),
        (["--budget", "lots"], "--budget lots should be an amount"),
        (["--epochs", "0"], "epochs=0 should be from"),
        (["--cluster", "p4d.24xlage"], "--cluster: no machine 'p4d.24xlage': did you mean p4d.24xlarge"),
        (["--cluster", "nowhere.toml"], "nowhere.toml: no such file"),
        (["--cluster", ","], "--cluster , names no machine: give some, a cluster.toml, or catalogue for all"),
        (["--cluster", "vms.csv"], "vms.csv is not a cluster.toml; SkyPilot's files have no links"),
        (["--cluster", "here"], "of this machine is not calibrated yet: run paceline calibrate --local-workers first"),
        (["--batch", "99999", "--cluster", "g5.xlarge"], "has no batch of 99,999: give a smaller --batch"),
        (["--strategies", "synch"], "no strategy 'synch': did you mean sync"),
        (["--spot", "--cluster", "g5.xlarge"], "--spot: no machine of g5.xlarge has a spot price"),
        (["--set", "btach=3"], "no setting 'btach' for plan: did you mean batch"),
    ],
)
def test_what_is_asked_wrongly_is_one_line(paceline, arguments, line):
    assert line in paceline("plan", "mlp", *arguments).refused()


def test_a_workload_that_does_not_exist(paceline):
    assert paceline("plan", "mpl").refused() == "no network 'mpl': did you mean mlp?"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('[[machines]]\nname = "box"\ndevices = "T4"\n', "machine 'box' has no host_device link"),
        ('[[machines]]\nname = "box"\ncount = 2\ndevices = "n1 vCPU"\n', "machine 'box' has no network link"),
        ('[[machines]]\nlike = "box"\n', "machines[0].like: no machine 'box'"),
        ("[[machines]", "not valid TOML"),
    ],
)
def test_a_cluster_that_is_not_whole(paceline, tmp_path, text, line):
    (tmp_path / "bad.toml").write_text(text)
    said = paceline("plan", "mlp", "--cluster", "bad.toml").refused()
    assert said.startswith("bad.toml: ") and line in said


def test_a_directory_that_holds_something_is_not_written_to(paceline, lab, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "kept").touch()
    assert "--out full is not empty" in paceline("plan", "mlp", "--cluster", lab, "--out", "full").refused()


@pytest.fixture
def planned(paceline, lab, tmp_path):
    """For the processor that the test says it is on, with one worker or more."""

    def make(workers: int) -> str:
        assert paceline("plan", "mlp", "--cluster", lab, "--epochs", "1", "--out", f"plan-{workers}").code == 0
        made = record.load(tmp_path / f"plan-{workers}" / "plan.json")
        pick = next(one for one in made.simulated if one.candidate.workers == 1)
        candidate = replace(
            pick.candidate, device="Ryzen 9 7950X", machine="desk", workers=workers, workers_per_machine=workers,
            precision="float32", batch=50,
        )  # fmt: skip
        record.save(replace(made, pick=replace(pick, candidate=candidate)), tmp_path / f"plan-{workers}" / "plan.json")
        return f"plan-{workers}"

    return make


@pytest.fixture
def desk(monkeypatch):
    monkeypatch.setattr(
        running, "local_hardware", lambda: running.Hardware((), (), "AMD Ryzen 9 7950X 16-Core Processor")
    )


def test_training_as_planned_keeps_the_prediction_beside_the_run(paceline, planned, desk, tmp_path):
    result = paceline("train", "--plan", planned(1), "--out", "run")
    assert result.code == 0, result.err
    run, prediction = record.load(tmp_path / "run"), record.load(tmp_path / "run" / "prediction.json")
    assert isinstance(prediction, Prediction)
    assert (run.workload.batch, run.workload.epochs, run.workload.device) == (50, 1, "cpu")
    assert run.distribution is None
    plan = record.load(tmp_path / "plan-1" / "plan.json")
    assert prediction == plan.prediction


@pytest.mark.slow
def test_training_with_workers_as_planned(paceline, planned, desk, tmp_path):
    result = paceline("train", "--plan", f"{planned(2)}/plan.json", "--out", "run")
    assert result.code == 0, result.err
    run = record.load(tmp_path / "run")
    assert run.distribution.workers == 2 and run.distribution.strategy.name == "sync"
    assert (tmp_path / "run" / "prediction.json").exists()


def test_what_is_given_goes_before_the_plan(paceline, planned, desk, tmp_path):
    assert paceline("train", "--plan", planned(1), "--out", "run", "--batch", "80", "--lr", "0.05").code == 0
    workload = record.load(tmp_path / "run").workload
    assert (workload.batch, workload.lr) == (80, 0.05)


def test_a_device_that_is_not_here(paceline, planned, monkeypatch, tmp_path):
    monkeypatch.setattr(running, "local_hardware", lambda: running.Hardware((), (), "Another CPU"))
    name = planned(1)
    said = paceline("train", "--plan", name, "--out", "run").refused()
    assert said == (
        "the plan is for one worker on Ryzen 9 7950X (desk), but this machine has no GPU (processor: Another CPU): "
        "run it on the planned hardware, or here with --device cpu"
    )
    assert not (tmp_path / "run").exists()
    assert paceline("train", "--plan", name, "--out", "run", "--device", "cpu").code == 0


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["mlp", "--plan", "PLAN"], "says what to train: leave 'mlp' out"),
        (["--plan", "PLAN", "--resume", "run"], "--plan is for new runs"),
        (["--plan", "PLAN", "--strategy", "sync"], "--strategy and a plan cannot be combined"),
        (["--plan", "missing.json"], "no record at missing.json"),
    ],
)
def test_a_plan_with_something_that_does_not_go_with_it(paceline, planned, desk, arguments, line):
    name = planned(1)
    assert line in paceline("train", *(name if word == "PLAN" else word for word in arguments)).refused()


def test_a_record_that_is_no_plan(paceline, trained):
    assert "holds a run, not a plan" in paceline("train", "--plan", trained / "record.json").refused()
