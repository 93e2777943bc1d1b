"""`paceline deploy`: from a saved plan to a file, and one line for whatever is asked wrongly."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from paceline import record
from paceline.deployment.settings import TARGETS
from tests.deployment.plans import planned


@pytest.fixture(autouse=True)
def saved(paceline, tmp_path):
    """Plans in files: for GPUs, for CPUs, with one worker; and something that is no plan."""
    alone = planned(machines=1, workers_per_machine=1)
    for name, plan in {
        "gpus": planned(),
        "cpus": planned("n1-standard-8", workers_per_machine=8),
        "one": alone,
    }.items():
        (tmp_path / name).mkdir()
        record.save(plan, tmp_path / name / "plan.json")
    record.save(alone.prediction, tmp_path / "prediction.json")
    (tmp_path / "text.json").write_text("no plan")
    other = planned("g5.xlarge", workers_per_machine=1).machine
    record.save(replace(planned(), machine=other), tmp_path / "changed.json")
    damaged = record.dump(planned())
    del damaged["machine"]
    (tmp_path / "damaged.json").write_text(json.dumps(damaged))


@pytest.mark.parametrize("target", TARGETS)
def test_the_file_goes_to_standard_output_or_is_written(paceline, tmp_path, target):
    shown = paceline("deploy", target, "gpus")
    assert shown.code == 0 and shown.err == "" and "paceline train mlp" in shown.out
    written = paceline("deploy", target, "gpus/plan.json", "--out", "files/it")
    assert written.code == 0 and "saved to files/it; start with: " in written.out
    assert (tmp_path / "files/it").read_text() == shown.out
    found = paceline("deploy", target, "gpus", "--json", "-").json
    assert found == {"target": target, "file": None, "text": shown.out}


@pytest.mark.parametrize(
    ("target", "start"),
    [("kubernetes", "kubectl apply -f it"), ("slurm", "sbatch it"), ("skypilot", "sky launch it")],
)
def test_it_says_how_to_start(paceline, target, start):
    assert paceline("deploy", target, "gpus", "--out", "it").out.strip().endswith(f"start with: {start}")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["kubernets", "gpus"], "no target 'kubernets': did you mean kubernetes?"),
        (["nomad", "gpus"], "no target 'nomad': known: compose, kubernetes, skypilot, slurm"),
        (["slurm", "nowhere"], "no record at nowhere"),
        (["slurm", "text.json"], "text.json is not a Paceline record"),
        (["slurm", "prediction.json"], "plan prediction.json holds a prediction, not a plan"),
        (["slurm", "damaged.json"], "damaged.json.machine is missing"),
        (["slurm", "changed.json"], "the plan's machine 'g5.xlarge' has no device 'L4': make the plan again"),
        (["slurm", "one"], "the plan's pick has one worker, which needs no cluster: train with the plan itself"),
        (
            ["kubernetes", "cpus", "--gpu-resource", "amd.com/gpu"],
            "--gpu-resource is for GPUs, and the plan is for CPUs",
        ),
        (["slurm", "gpus", "--image", "x"], "--image is for kubernetes and skypilot and compose, not for slurm"),
        (["compose", "gpus", "--partition", "x"], "--partition is for slurm, not for compose"),
        (["kubernetes", "gpus", "--name", "My Job"], "name='My Job' should be at most 40 lower-case letters"),
        (["kubernetes", "gpus", "--storage-size", "20 GB"], "should be a size in Kubernetes notation, e.g. 20Gi"),
        (["slurm", "gpus", "--time-limit", "2h"], "time_limit='2h' should be HH:MM:SS or DAYS-HH:MM:SS"),
        (["slurm", "gpus", "--partition", "a\nb"], "should be on one line"),
        (["slurm", "gpus", "--worker-cpus", "0"], "worker_cpus=0 should be a number above 0"),
        (["skypilot", "gpus", "--cloud", "awss"], "cloud 'awss' is unknown: did you mean aws?"),
        (["skypilot", "gpus", "--storage", "disk"], "--storage disk should be a bucket, e.g. s3://NAME or gs://NAME"),
        (["slurm", "gpus", "--partion", "x"], "No such option: --partion"),
    ],
)
def test_what_is_asked_wrongly_is_one_line(paceline, arguments, line):
    assert line in paceline("deploy", *arguments).refused()


def test_a_file_that_cannot_be_written(paceline):
    assert "--out gpus is a directory" in paceline("deploy", "slurm", "gpus", "--out", "gpus").refused()


def test_objects_of_python_cannot_be_sent_to_a_cluster(paceline, tmp_path):
    plan = planned()
    held = replace(plan, workload=replace(plan.workload, network="object:net"))
    record.save(held, tmp_path / "held.json")
    assert "the plan's network was passed as a Python object;" in paceline("deploy", "slurm", "held.json").refused()


@pytest.mark.parametrize(("workers", "said"), [(4, True), (1, False)])
def test_a_plan_with_workers_says_how_to_deploy_it(paceline, monkeypatch, workers, said):
    made = planned(machines=1, workers_per_machine=workers)
    monkeypatch.setattr("paceline.cli.plan.run", lambda *arguments, **settings: made)
    shown = paceline("plan", "mlp", "--out", "plans/one").out
    assert ("on a cluster: paceline deploy kubernetes plans/one (or slurm, skypilot, compose)" in shown) is said
