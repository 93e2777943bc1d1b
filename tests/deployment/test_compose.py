"""A compose file is valid; a head trains with workers that are other containers."""

from __future__ import annotations

import jsonschema
import pytest

from paceline import deploy
from tests.deployment import shell
from tests.deployment.captured import captured
from tests.deployment.plans import planned
from tests.deployment.validation import read_compose


def test_twelve_workers_in_three_containers(tmp_path, monkeypatch):
    document = read_compose(deploy("compose", planned("n1-standard-8", workers_per_machine=4)))
    worker, head = document["services"]["worker"], document["services"]["head"]
    assert worker["deploy"] == {"replicas": 3}
    assert worker["command"][-3:] == ["--num-cpus=4", "--num-gpus=0", "--block"]
    assert worker["depends_on"] == {"head": {"condition": "service_healthy"}}
    assert worker["image"] == head["image"] == "paceline"
    assert head["volumes"] == ["results:/results"] and "results" in document["volumes"]
    script = head["command"][2]
    shell.check(script)
    code, calls = shell.run(script, tmp_path, {})
    assert code == 0 and calls[0].startswith("ray <start> <--head> <--port=6379>")
    assert calls[1].startswith("python <-m> <paceline.deployment.wait_for_nodes> <4>")
    monkeypatch.chdir(tmp_path)
    found = captured(script[script.index("paceline train") :].replace("\\\n", " "), monkeypatch)
    assert (found.setup.workers, found.workload.device) == (12, "cpu")


def test_one_container_has_the_gpus_of_the_machine():
    document = read_compose(deploy("compose", planned()))
    worker = document["services"]["worker"]
    assert worker["deploy"]["replicas"] == 1
    (devices,) = worker["deploy"]["resources"]["reservations"]["devices"]
    assert devices == {"driver": "nvidia", "count": 12, "capabilities": ["gpu"]}
    assert worker["command"][-3:] == ["--num-cpus=132", "--num-gpus=12", "--block"]
    assert "wait_for_nodes 2" in document["services"]["head"]["command"][2]


def test_a_directory_of_the_host_and_signs_that_compose_replaces():
    plan = planned(data="csv:$HOME.csv?target=y")
    document = read_compose(deploy("compose", plan, storage="./runs", image="team/paceline"))
    assert document["services"]["head"]["volumes"] == ["./runs:/results"] and "volumes" not in document
    assert "csv:$$HOME.csv" in document["services"]["head"]["command"][2]


def test_the_schema_refuses_what_compose_would():
    text = deploy("compose", planned())
    for before, after in (("replicas: 1", "replicas: [1]"), ("shm_size", "shm"), ("service_healthy", "healthy")):
        with pytest.raises(jsonschema.ValidationError):
            read_compose(text.replace(before, after))
