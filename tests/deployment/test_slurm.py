"""A batch script asks for the plan's nodes, and starts Ray on all of them before it trains."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace

import pytest

from paceline import deploy
from tests.deployment import shell
from tests.deployment.captured import captured
from tests.deployment.plans import planned

JOB = {"SLURM_JOB_NODELIST": "node[1-3]", "SLURM_JOB_ID": "1234567"}
ADDRESS = "10.0.0.5:24567"


def requested(script: str) -> dict[str, str]:
    return dict(re.findall(r"^#SBATCH --([a-z-]+)=(.*)$", script, re.MULTILINE))


def test_twelve_workers_on_three_nodes():
    asked = requested(deploy("slurm", planned()))
    assert asked == {
        "job-name": "mlp-downpour", "output": "%x-%j.log", "time": "0-00:30:00", "nodes": "3", "ntasks-per-node": "1",
        "cpus-per-task": "44", "gpus-per-node": "4",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("plan", "settings"),
    [
        ({}, {}),
        ({"machine": "c6i.32xlarge", "workers_per_machine": 2}, {"partition": "long", "account": "team"}),
        ({"machines": 1}, {"setup": "source ~/venv/bin/activate", "storage": "/scratch/my runs"}),
        ({"server_machine": True, "data": "csv:it's $HOME.csv?target=y"}, {"from_checkpoint": True}),
    ],
    ids=["GPUs", "CPUs", "one machine", "server"],
)
def test_the_script_is_clean_shell(plan, settings):
    script = deploy("slurm", planned(**plan), **settings)
    shell.check(script.replace("source ~/venv/bin/activate", "true"))
    asked = requested(script)
    assert asked.get("partition") == settings.get("partition") and asked.get("account") == settings.get("account")


def test_ray_is_started_on_every_node_and_then_it_trains(tmp_path, monkeypatch):
    code, calls = shell.run(deploy("slurm", planned()), tmp_path, JOB, srun="sleep 0.1")
    here = [call for call in calls if not call.startswith("srun")]
    assert code == 0
    assert here[:3] == [
        "hostname <--ip-address> []",
        "ray <start> <--head> <--node-ip-address=10.0.0.5> <--port=24567> <--include-dashboard=false> "
        f"<--num-cpus=44> <--num-gpus=4> [{ADDRESS}]",
        f"scontrol <show> <hostnames> <node[1-3]> [{ADDRESS}]",
    ]
    (others,) = [call for call in calls if call.startswith("srun")]
    assert others == (
        "srun <--nodes=2> <--ntasks=2> <--exclude=node1> <ray> <start> "
        f"<--address={ADDRESS}> <--num-cpus=44> <--num-gpus=4> <--block> [{ADDRESS}]"
    )
    assert here[3] == f"python <-m> <paceline.deployment.wait_for_nodes> <3> [{ADDRESS}]"
    assert here[4].startswith("paceline <train> <mlp>") and here[4].endswith(f"<--out> <runs/mlp-downpour> [{ADDRESS}]")
    assert len(here) == 5, "`ray stop` would end other jobs of the user on the node"
    monkeypatch.chdir(tmp_path)
    found = captured(shlex.join(["paceline", *re.findall(r"<([^>]*)>", here[4])]), monkeypatch)
    assert (found.setup.workers, found.setup.driver.driver, found.setup.driver.address) == (12, "ray", "auto")


def test_words_with_spaces_and_signs_reach_the_program(tmp_path):
    plan = planned(data="csv:it's $HOME.csv?target=y")
    _, calls = shell.run(deploy("slurm", plan, storage="/scratch/my runs"), tmp_path, JOB)
    (trained,) = [call for call in calls if call.startswith("paceline")]
    assert "<--data> <csv:it's $HOME.csv?target=y>" in trained and "<--out> </scratch/my runs/mlp-downpour>" in trained


def test_a_machine_for_the_server_takes_no_workers(tmp_path):
    script = deploy("slurm", planned(server_machine=True))
    assert requested(script)["nodes"] == "4"
    _, calls = shell.run(script, tmp_path, JOB)
    assert "<--num-cpus=0> <--num-gpus=0>" in calls[1]
    assert any("wait_for_nodes> <4>" in call for call in calls)


def test_the_job_fails_when_training_does_and_does_not_train_without_nodes(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    code, calls = shell.run(deploy("slurm", planned()), tmp_path / "one", JOB, paceline="exit 3")
    assert code == 3
    code, calls = shell.run(deploy("slurm", planned()), tmp_path / "two", JOB, python="exit 1")
    assert code == 1 and not any(call.startswith("paceline") for call in calls)


def test_one_node_needs_no_srun(tmp_path):
    _, calls = shell.run(deploy("slurm", planned(machines=1)), tmp_path, JOB)
    assert not any(call.startswith("srun") for call in calls)


def test_the_time_limit_is_twice_the_upper_end_of_the_prediction():
    plan = planned()
    long = replace(plan, pick=replace(plan.pick, high_s=13 * 3600.0))
    assert requested(deploy("slurm", long))["time"] == "1-02:00:00"
    assert requested(deploy("slurm", long, time_limit="12:00:00"))["time"] == "12:00:00"
