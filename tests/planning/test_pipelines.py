"""A network that does not fit the stated memory of one device is planned as a pipeline, and the plan trains."""

from __future__ import annotations

from pathlib import Path

import pytest

import paceline
from paceline.errors import InputError, NetworkError, PacelineError
from paceline.planning.forecast import Forecast
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


def test_a_network_that_is_too_large_is_a_pipeline_whose_plan_trains(tmp_path: Path) -> None:
    plan = paceline.plan("mlp", cluster(tmp_path, "0.95 GB"), **LARGE)
    pick, stages = plan.pick.candidate, plan.pipeline.stages
    assert pick.pipeline == len(stages) == pick.workers > 1 and pick.samples_in_flight == pick.batch
    room = 0.9 * 0.95e9 - (600 << 20)
    assert plan.prediction.memory_bytes > room >= max(stage.memory_bytes for stage in stages)
    assert plan.excluded["do not fit in memory"] > 0
    assert plan.pick.low_s < plan.pick.time_s < plan.pick.high_s
    assert plan.pick.time_s == pytest.approx(plan.pipeline.epoch_s)
    assert any("does not fit on one small card" in reason for reason in plan.reasons)
    run = paceline.train(plan, device="cpu", threads=1)
    assert run.status == "finished" and run.division.pipeline == pick.pipeline
    assert run.division.cut[1:] == tuple(stage.layers[0] for stage in stages[1:])
    with pytest.raises(InputError, match="a pipeline of one machine and needs no cluster"):
        paceline.deploy("slurm", plan, tmp_path / "deployed")


def test_a_network_that_fits_is_not_cut(tmp_path: Path) -> None:
    plan = paceline.plan("mlp", cluster(tmp_path, "24 GB"), **LARGE)
    assert plan.pipeline is None and all(one.candidate.pipeline == 1 for one in plan.simulated)


def test_a_network_too_large_for_any_number_of_stages_is_not_planned(tmp_path: Path) -> None:
    with pytest.raises(PacelineError, match=r"\d+ do not fit in memory"):
        paceline.plan("mlp", cluster(tmp_path, "0.75 GB"), **LARGE)


def test_a_network_that_cannot_be_cut_is_traced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    traced = []

    def trace(workload: Workload, shape: object) -> None:
        traced.append(workload.batch)
        raise NetworkError("mlp cannot be cut")

    monkeypatch.setattr("paceline.planning.forecast.trace_pieces", trace)
    forecast = Forecast(resolve("mlp", {"data": "digits"}), lambda *_: pytest.fail("nothing is predicted"))
    for batch in (8, 8, 16):
        with pytest.raises(NetworkError, match="cannot be cut"):
            forecast._pieces_of(batch)
    assert traced == [8]
