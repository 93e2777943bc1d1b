"""Every worker of a distributed run measures its own layers; the run is none the worse for it."""

from __future__ import annotations

import pytest

from paceline.training.drivers.local import launcher
from paceline.training.worker_measurements import worker_measurements
from paceline.workload import resolve

WORKLOAD = resolve(
    "dnn", {"data": "digits", "batch": 32, "epochs": 12, "dropout": 0.0, "optimizer": "sgd", "lr": 0.1, "threads": 1}
)


@pytest.mark.parametrize("strategy", [pytest.param("sync", marks=pytest.mark.slow), "downpour"])
def test_layers_are_measured_in_every_worker(strategy, tmp_path):
    run = launcher.run(WORKLOAD, strategy, workers=2, measure=tmp_path)
    assert run.status == "finished" and run.distribution is not None
    assert run.distribution.ledger.applied == 12 * 45
    found = worker_measurements(tmp_path, 2)
    assert found
    for worker, m in found.items():
        assert m.device == f"worker {worker} on cpu" and m.conditions["strategy"] == strategy
        assert sum(m.parts_s.values()) == pytest.approx(m.iteration_s.mean_s)
        assert m.parts_s["communicate"] > 0 and m.parts_s["load"] > 0
        layers = {layer.name: layer for layer in m.layers}
        assert all(layers[name].forward_s.median_s > 0 for name in ("fc1", "fc2", "output"))
        assert all(layers[name].backward_s.median_s > 0 for name in ("fc1", "fc2", "output"))


def test_without_it_nothing_is_written(tmp_path):
    launcher.run(WORKLOAD, "downpour", workers=2, out=tmp_path / "run")
    assert not (tmp_path / "run" / "measure").exists()
