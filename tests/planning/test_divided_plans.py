"""A network that does not fit the stated memory of one device is divided among several, and the plan trains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import paceline
from paceline.errors import InputError, NetworkError, PacelineError
from paceline.planning.divisions import Divisions
from paceline.workload import Workload, resolve

CARDS = """
name = "small cards"

[devices."small card"]
kind = "gpu"
relative = "ampere"
float32 = "10 TFLOP/s"
memory = "{memory}"
memory_bandwidth = "300 GB/s"

[[machines]]
name = "box"
devices = {{ "small card" = 4 }}
vcpus = 8
memory = "64 GB"
host_device = "PCIe 4.0 x16"
price = 1.0
"""
LARGE = {
    "data": "digits:128", "batch": 64, "epochs": 1, "optimizer": "adam", "lr": 1e-4, "options.hidden": [1800] * 6,
}  # fmt: skip
"""Parameters, gradients and Adam's state take 260 MB."""


def cluster(tmp_path: Path, memory: str) -> Path:
    path = tmp_path / "cluster.toml"
    path.write_text(CARDS.format(memory=memory))
    return path


ODD = LARGE | {"options.hidden": [1801] * 6}
"""Its features cannot be divided by 2 or 4."""
ROOM_BYTES = 0.9 * 0.95e9 - (600 << 20)


def planned(tmp_path: Path, settings: dict[str, Any], **more: Any) -> paceline.Plan:
    """The plan as it is loaded again, which is what trains."""
    paceline.plan("mlp", cluster(tmp_path, "0.95 GB"), out=tmp_path / "plan", **settings, **more)
    plan = paceline.load(tmp_path / "plan" / "plan.json")
    assert isinstance(plan, paceline.Plan)
    assert plan.prediction.memory_bytes > ROOM_BYTES and plan.excluded["do not fit in memory"] > 0
    assert plan.pick.low_s < plan.pick.time_s < plan.pick.high_s
    assert any("does not fit on one small card" in reason for reason in plan.reasons)
    return plan


def test_layers_are_divided_by_feature_and_the_plan_trains(tmp_path: Path) -> None:
    plan = planned(tmp_path, LARGE)
    pick = plan.pick.candidate
    assert pick.tensor == pick.workers == 4 and pick.copies == 1 and pick.samples_in_flight == pick.batch
    assert plan.divided.memory_bytes <= ROOM_BYTES and plan.divided.sent_bytes > 0
    assert plan.pick.time_s == pytest.approx(plan.divided.epoch_s)
    assert 0 < plan.pick.communication_share < 1 and plan.pick.waiting_share == 0
    run = paceline.train(plan, device="cpu", threads=1)
    assert run.status == "finished" and run.division.tensor == 4


def test_parameters_are_sharded_where_features_cannot_be_divided_and_the_plan_trains(tmp_path: Path) -> None:
    plan = planned(tmp_path, ODD)
    pick = plan.pick.candidate
    assert pick.shard == "fsdp" and pick.copies == pick.workers == plan.divided.replicas > 1
    assert pick.samples_in_flight == pick.workers * pick.batch
    assert plan.divided.memory_bytes <= ROOM_BYTES
    assert plan.pick.time_s == pytest.approx(plan.divided.epoch_s)
    run = paceline.train(plan, device="cpu", threads=1)
    assert run.status == "finished"
    assert run.division.shard == "fsdp" and run.division.replicas == pick.workers
    with pytest.raises(InputError, match="divided within one machine and needs no cluster"):
        paceline.deploy("slurm", plan, tmp_path / "deployed")


def test_a_pipeline_is_picked_where_neither_is_possible_and_the_plan_trains(tmp_path: Path) -> None:
    plan = planned(tmp_path, ODD, strategies="downpour")  # sharded workers would be synchronous
    pick, stages = plan.pick.candidate, plan.pipeline.stages
    assert pick.pipeline == len(stages) == pick.workers > 1 and pick.samples_in_flight == pick.batch
    assert max(stage.memory_bytes for stage in stages) <= ROOM_BYTES
    assert plan.pick.time_s == pytest.approx(plan.pipeline.epoch_s)
    run = paceline.train(plan, device="cpu", threads=1)
    assert run.status == "finished" and run.division.pipeline == pick.pipeline
    assert run.division.cut[1:] == tuple(stage.layers[0] for stage in stages[1:])


def test_a_network_that_fits_is_not_cut(tmp_path: Path) -> None:
    plan = paceline.plan("mlp", cluster(tmp_path, "24 GB"), **LARGE)
    assert plan.pipeline is plan.divided is None and not any(one.candidate.is_divided for one in plan.simulated)


def test_a_network_too_large_for_all_devices_together_is_not_planned(tmp_path: Path) -> None:
    with pytest.raises(PacelineError, match=r"\d+ do not fit in memory"):
        paceline.plan("mlp", cluster(tmp_path, "0.75 GB"), **LARGE)


def test_a_network_that_cannot_be_cut_is_traced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    traced = []

    def trace(workload: Workload, shape: object, **_: object) -> None:
        traced.append(workload.batch)
        raise NetworkError("mlp cannot be cut")

    monkeypatch.setattr("paceline.planning.divisions.trace_pieces", trace)
    divisions = Divisions(resolve("mlp", {"data": "digits"}), lambda *_, **__: pytest.fail("nothing is predicted"))
    for batch in (8, 8, 16):
        with pytest.raises(NetworkError, match="cannot be cut"):
            divisions.pieces_of(batch)
    assert traced == [8]
