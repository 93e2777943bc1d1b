"""A SkyPilot task is valid, names the plan's machines, and starts a Ray of its own on every node."""

from __future__ import annotations

import jsonschema
import pytest

from paceline import InputError, deploy
from tests.deployment import shell
from tests.deployment.captured import captured
from tests.deployment.plans import planned
from tests.deployment.validation import read_skypilot

NODES = {"SKYPILOT_NODE_IPS": "10.0.0.5\n10.0.0.6\n10.0.0.7"}
ADDRESS = "10.0.0.5:6379"


@pytest.mark.parametrize(
    ("machine", "workers", "expected"),
    [
        ("g2-standard-48", 4, {"infra": "gcp/us-central1", "instance_type": "g2-standard-48", "accelerators": "L4:4"}),
        ("a2-ultragpu-1g", 1, {
            "infra": "gcp/us-central1", "instance_type": "a2-ultragpu-1g", "accelerators": "A100-80GB:1",
        }),
        ("p5.48xlarge", 8, {"infra": "aws/us-east-1", "instance_type": "p5.48xlarge", "accelerators": "H100:8"}),
        ("NC4as_T4_v3", 1, {"infra": "azure/eastus", "instance_type": "Standard_NC4as_T4_v3", "accelerators": "T4:1"}),
        ("gpu_1x_a10", 1, {"infra": "lambda", "instance_type": "gpu_1x_a10", "accelerators": "A10:1"}),
        ("c6i.32xlarge", 2, {"infra": "aws/us-east-1", "instance_type": "c6i.32xlarge"}),
    ],
)  # fmt: skip
def test_the_machines_of_the_plan(machine, workers, expected):
    task = read_skypilot(deploy("skypilot", planned(machine, workers_per_machine=workers)))
    assert task["num_nodes"] == 3 and task["resources"] == {**expected, "use_spot": False}


def test_spot_machines_and_an_image():
    task = read_skypilot(deploy("skypilot", planned(spot=True), image="team/paceline:1", name="one"))
    assert task["resources"]["use_spot"] is True and task["resources"]["image_id"] == "docker:team/paceline:1"
    assert "setup" not in task and task["name"] == "one"
    assert "pip install" in read_skypilot(deploy("skypilot", planned()))["setup"]
    assert read_skypilot(deploy("skypilot", planned(), setup="pip install ."))["setup"] == "pip install .\n"


def test_a_bucket_keeps_the_run():
    task = read_skypilot(deploy("skypilot", planned(), storage="s3://mine"))
    assert task["file_mounts"] == {"/results": {"source": "s3://mine", "mode": "MOUNT"}}
    assert "--out /results/mlp-downpour" in task["run"]
    with pytest.raises(InputError, match="should be a bucket"):
        deploy("skypilot", planned(), storage="/mine")


def test_the_first_node_trains(tmp_path, monkeypatch):
    run = read_skypilot(deploy("skypilot", planned(server_machine=True)))["run"]
    shell.check(run)
    code, calls = shell.run(run, tmp_path, NODES | {"SKYPILOT_NODE_RANK": "0"})
    assert code == 0
    assert calls[0].startswith("ray <start> <--head> <--node-ip-address=10.0.0.5> <--port=6379>")
    assert calls[0].endswith(f"<--num-cpus=0> <--num-gpus=0> [{ADDRESS}]")
    assert calls[1] == f"python <-m> <paceline.deployment.wait_for_nodes> <4> [{ADDRESS}]"
    assert calls[2].startswith("paceline <train> <mlp>") and len(calls) == 3
    monkeypatch.chdir(tmp_path)
    command = run[run.index("paceline train") :].replace("\\\n", " ")
    assert captured(command, monkeypatch).setup.workers == 12


def test_the_others_join_when_the_head_is_up(tmp_path):
    run = read_skypilot(deploy("skypilot", planned()))["run"]
    code, calls = shell.run(run, tmp_path, NODES | {"SKYPILOT_NODE_RANK": "2"})
    assert code == 0
    assert calls == [
        f"ray <status> <--address={ADDRESS}> [{ADDRESS}]",
        f"ray <start> <--address={ADDRESS}> <--dashboard-agent-listen-port=52366> <--num-cpus=44> <--num-gpus=4> "
        f"[{ADDRESS}]",
    ]


def test_the_schema_refuses_what_skypilot_would():
    text = deploy("skypilot", planned())
    for before, after in (("num_nodes: 3", "num_nodes: three"), ("use_spot", "spot"), ("gcp/us", "gpc/us")):
        with pytest.raises(jsonschema.ValidationError):
            read_skypilot(text.replace(before, after))
